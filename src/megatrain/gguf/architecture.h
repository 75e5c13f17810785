// What llama.cpp has to know of a model beside its tensors: the keys of its sizes, RoPE and experts, and those that its
// family names (LlamaCpp in model/family.h). What llama.cpp computes otherwise is refused by name.
#pragma once

#include "megatrain/gguf/gguf_file.h"
#include "megatrain/model/family.h"

namespace megatrain {

// Both throw Error(bad_input): the first for a family that llama.cpp does not have, the second also for a field of one.
const LlamaCpp& llama_cpp_of(const Family& family);
const LlamaCpp& gguf_family(const ModelConfig& config);

// general.architecture is first, as the format wants it. A window that llama.cpp would ignore ends the context there,
// with a line in the log: within it both compute the same.
void add_architecture(const ModelConfig& config, GgufMetadata& metadata);

}  // namespace megatrain
