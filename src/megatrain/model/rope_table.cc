#include "megatrain/model/rope_table.h"

#include <cmath>

namespace megatrain {

std::vector<float> make_rope_table(const ModelConfig& config, int64_t positions) {
  const std::vector<double> frequency = rope_frequencies(config);
  const size_t half = frequency.size(), size = static_cast<size_t>(positions) * half;
  std::vector<float> table(2 * size);
  for (size_t p = 0; p < static_cast<size_t>(positions); ++p) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * frequency[i];
      table[p * half + i] = static_cast<float>(std::cos(angle) * config.rope.attention_factor);
      table[size + p * half + i] = static_cast<float>(std::sin(angle) * config.rope.attention_factor);
    }
  }
  return table;
}

}  // namespace megatrain
