// Embedding over gathered rows: the caller has brought only the touched rows of the table to the device.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

// out[t] = table[index[t]]
struct EmbeddingForward {
  View table;            // (R, H) touched rows
  const int32_t* index;  // (T) row of `table` for each token
  View out;              // (T, H) same dtype as table
};

// grad[row[u]] += sum over segment u of grad_out[order[i]], i in [begin[u], begin[u+1]), added one by one in that order
// in fp32 onto what is there, so that splitting the tokens over several calls gives the same bits.
struct EmbeddingBackward {
  View grad_out;         // (T, H)
  const int32_t* order;  // (T) token positions sorted by row, ascending within a row
  const int32_t* begin;  // (U + 1)
  const int32_t* row;    // (U) row of `grad` that segment u adds to; distinct
  int64_t segments;      // U
  View grad;             // (R, H) fp32
};

}  // namespace megatrain
