// What llama.cpp has to know of a model beside its tensors: the architecture that it calls the family, and the keys of
// its sizes, RoPE and experts. What llama.cpp computes otherwise is refused by name.
#pragma once

#include <string>

#include "megatrain/gguf/gguf_file.h"
#include "megatrain/model/config.h"

namespace megatrain {

// "llama", "qwen3moe", ... Throws Error(bad_input) for a family, or a field of one, that llama.cpp does not have.
std::string gguf_architecture(const ModelConfig& config);

// general.architecture is first, as the format wants it. A window that llama.cpp would ignore ends the context there,
// with a line in the log: within it both compute the same.
void add_architecture(const ModelConfig& config, GgufMetadata& metadata);

}  // namespace megatrain
