// Which tensors a GGUF file has, and of which of the model's each is made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/gguf/gguf_file.h"
#include "megatrain/model/config.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

struct GgufTensor {
  GgufTensorEntry entry;
  std::vector<const TensorSpec*> parts;  // one behind the other: experts by number; empty: `values` are the tensor
  std::vector<float> values;
  // Rows of a head whose pairs are (i, i + n / 2) in our files, as (2 i, 2 i + 1) in theirs; 0: rows stay. n.
  int64_t pair_rows = 0;
  float add = 0;  // to every value: what our files' norms leave out
};

// Of all tensors of the model, in the order in which the model has them; the specs must outlive what is returned.
// Vectors and the router are f32 in every file, as llama.cpp's own conversion has them. Throws Error(bad_input) for a
// tensor that llama.cpp has no name for.
std::vector<GgufTensor> gguf_tensors(const ModelConfig& config, const std::vector<const TensorSpec*>& specs,
                                     GgufType type);

}  // namespace megatrain
