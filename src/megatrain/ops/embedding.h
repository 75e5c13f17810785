// Embedding over gathered rows: only the rows of the table that are needed are on the device.
#pragma once

#include "megatrain/base/bf16.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

// A model's embedding scale, rounded to the weights' dtype as transformers does. Forward and backward both use it.
inline float embedding_scale(double scale, DType weights) {
  const float rounded = static_cast<float>(scale);
  return weights == DType::bf16 ? to_float(to_bf16(rounded)) : rounded;
}

// out[t] = table[index[t]] * scale, rounded once. A negative index leaves out[t] as it is.
struct EmbeddingForward {
  View table;            // (R, H) touched rows
  const int32_t* index;  // (T) row of `table` for each token
  float scale = 1;
  View out;  // (T, H) same dtype as table; may alias table if index[t] is t
};

// grad[row[u]] += sum over segment u of grad_out[order[i]] * scale, i in [begin[u], begin[u+1]). Terms are added one by
// one in that order in fp32 to the existing value, so that splitting the tokens over several calls gives the same bits.
struct EmbeddingBackward {
  View grad_out;         // (T, H)
  const int32_t* order;  // (T) token positions sorted by row, ascending within a row
  const int32_t* begin;  // (U + 1)
  const int32_t* row;    // (U) row of `grad` that segment u adds to; distinct
  int64_t segments;      // U
  float scale = 1;
  View grad;  // (R, H) fp32
};

}  // namespace megatrain
