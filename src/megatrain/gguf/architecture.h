// What llama.cpp needs to know about a model apart from its tensors: keys for sizes, RoPE and experts, and those that
// the family names (LlamaCpp in model/family.h). Models that llama.cpp would compute differently are refused by name.
#pragma once

#include "megatrain/gguf/gguf_file.h"
#include "megatrain/model/family.h"

namespace megatrain {

// Both throw Error(bad_input) for a family that llama.cpp lacks; the second also for an unsupported field of one.
const LlamaCpp& llama_cpp_of(const Family& family);
const LlamaCpp& gguf_family(const ModelConfig& config);

// general.architecture comes first, as the format requires. If llama.cpp would ignore the model's sliding window, the
// context is cut to the window, with a warning: within it both compute the same.
void add_architecture(const ModelConfig& config, GgufMetadata& metadata);

}  // namespace megatrain
