// Generation between the steps of a run (sample.every): how many sequences at once and how many tokens each. The plan
// that has memory for it and the run that generates both use these.
#pragma once

#include <cstdint>

#include "megatrain/config/config.h"
#include "megatrain/generate/cached_forward.h"

namespace megatrain {

// Tokens of the longest of the prompts where no tokenizer is there to count them: a token of text has at least a byte,
// and 256 are for the words and special tokens that a chat template puts around it.
int64_t most_prompt_tokens(const TrainConfig::Sample& sample);

// Context and batch. `prompt_tokens` are those of the longest prompt.
GeneratorOptions sample_options(const TrainConfig::Sample& sample, const ModelConfig& model, int64_t prompt_tokens);

}  // namespace megatrain
