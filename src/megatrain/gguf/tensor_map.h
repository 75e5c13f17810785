// Which tensors a GGUF file has, and which tensors of the model each consists of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/gguf/gguf_file.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

struct GgufTensor {
  GgufTensorEntry entry;
  std::vector<const TensorSpec*> parts;  // concatenated; experts by number. Empty: the tensor is `values`
  std::vector<float> values;
  // RoPE pairs the rows (i, i + n / 2) of a head in our files and (2 i, 2 i + 1) in theirs. This is n; 0: no
  // reordering.
  int64_t pair_rows = 0;
  float add = 0;  // added to every value: the norm_offset that weights of norms leave out
};

// All tensors of the model in its order; the specs must outlive the result. Vectors and the router are always f32, as
// in llama.cpp's own conversion. Throws Error(bad_input) for a tensor that llama.cpp has no name for.
std::vector<GgufTensor> gguf_tensors(const ModelConfig& config, const std::vector<const TensorSpec*>& specs,
                                     GgufType type);

// Maps row r of a head with pairs (2 i, 2 i + 1) to the row of a head with pairs (i, i + rows / 2).
int64_t row_of_pairs(int64_t row, int64_t rows);

// One half of an adapter, named after the tensor of the base that it adds to. The rows of a B half are in the order of
// that tensor's rows.
GgufTensor gguf_adapter_tensor(const ModelConfig& config, const TensorSpec& half, GgufType type);

}  // namespace megatrain
