// Causal grouped-query attention over packed documents. A token sees the earlier tokens of its own document; if window
// > 0, no more than `window` of them, itself included. Query head h reads key head h / (heads / kv_heads).
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

struct AttentionShape {
  int64_t tokens;  // T of a micro-batch
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;    // D
  int64_t window = 0;  // 0: unlimited
  float scale;         // multiplies q k^T
  float cap = 0;       // the scaled scores are cap * tanh(scores / cap); 0: as they are
};

// Documents tile [0, T).
struct Documents {
  const int32_t* begin;       // (count + 1) device memory, begin[0] = 0, begin[count] = T
  const int32_t* host_begin;  // the same in host memory; read only while a call is enqueued
  int64_t count;
  int64_t longest;  // tokens of the longest document
  bool uniform;     // every document has `longest` tokens
};

// Sinks are one learned logit per head. It takes part in every softmax of the head but has no value, so a row of
// probabilities sums to less than one. `lse` includes the sinks.
struct AttentionForward {
  AttentionShape shape;
  Documents documents;
  View q;      // (T, heads * D), strided rows
  View k;      // (T, kv_heads * D), strided rows
  View v;      // (T, kv_heads * D), strided rows
  View sinks;  // (heads) or empty
  View out;    // (T, heads * D)
  float* lse;  // (heads * T) log-sum-exp of the scores, layout private to the backend
};

struct AttentionBackward {
  AttentionShape shape;
  Documents documents;
  View q, k, v, sinks, out;
  const float* lse;
  View grad_out;            // (T, heads * D)
  View grad_q;              // (T, heads * D), strided rows
  View grad_k;              // (T, kv_heads * D), strided rows
  View grad_v;              // (T, kv_heads * D), strided rows
  View grad_sinks;          // (heads) fp32; empty: not wanted
  bool accumulate = false;  // grad_sinks += (true) or = (false)
};

}  // namespace megatrain
