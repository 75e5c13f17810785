#include "megatrain/train/sampling.h"

#include <algorithm>

namespace megatrain {

int64_t most_prompt_tokens(const TrainConfig::Sample& sample) {
  constexpr int64_t kAroundIt = 256;
  int64_t longest = 0;
  for (const std::string& prompt : sample.prompts) longest = std::max(longest, std::ssize(prompt));
  return longest + kAroundIt;
}

GeneratorOptions sample_options(const TrainConfig::Sample& sample, const ModelConfig& model,
                                const AdapterRules& adapter, int64_t prompt_tokens) {
  constexpr int64_t kAtOnce = 8;
  const int64_t limit = model.max_position;
  return {.max_context = std::min(prompt_tokens + std::min(sample.max_tokens, limit), limit),
          .max_batch = std::min<int64_t>(std::ssize(sample.prompts), kAtOnce),
          .adapter = adapter};
}

}  // namespace megatrain
