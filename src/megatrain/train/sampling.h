// Generation between the steps of a run (sample.every): how many sequences at once, and how many tokens each. Both the
// plan, which reserves memory for it, and the run, which generates, use these numbers.
#pragma once

#include <cstdint>

#include "megatrain/config/config.h"
#include "megatrain/generate/cached_forward.h"

namespace megatrain {

// An upper bound on the tokens of the longest prompt, if there is no tokenizer to count them. A token of text has at
// least one byte; 256 more are for the words and special tokens that a chat template adds.
int64_t most_prompt_tokens(const TrainConfig::Sample& sample);

// Context and batch size; `adapter` is that of the run. `prompt_tokens` is the length of the longest prompt.
GeneratorOptions sample_options(const TrainConfig::Sample& sample, const ModelConfig& model,
                                const AdapterRules& adapter, int64_t prompt_tokens);

}  // namespace megatrain
