// The gated delta rule: a linear recurrence whose state S, a matrix for each value head, starts at zero in every
// document. For each token, with q and k normalised to length 1 and q divided by sqrt(key_dim):
//   S = exp(g) S;  d = beta (v - S^T k);  S = S + k d^T;  out = S^T q
// Value head h reads key head h / (value_heads / key_heads).
//
// Training computes chunks of tokens at a time, by matmuls; generation computes the recurrence. Chunks are counted from
// each document's start, so a document's bits do not depend on what else is in the micro-batch.
#pragma once

#include <cstdint>

#include "megatrain/ops/attention.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

inline constexpr int64_t kDeltaChunk = 64;         // tokens
inline constexpr int64_t kMostDeltaDim = 256;      // of a head
inline constexpr float kDeltaNormEpsilon = 1e-6f;  // x / sqrt(sum x^2 + epsilon)

struct DeltaRuleShape {
  int64_t tokens = 0;  // T of a micro-batch
  int64_t key_heads = 0;
  int64_t value_heads = 0;  // a multiple of key_heads; 0: the model has no delta rule
  int64_t key_dim = 0;      // a multiple of 16, as value_dim
  int64_t value_dim = 0;
};

struct DeltaRuleForward {
  DeltaRuleShape shape;
  Documents documents;
  View q;  // (T, key_heads * key_dim), strided rows, as is k; not yet normalised
  View k;
  View v;     // (T, value_heads * value_dim), strided rows
  View g;     // (T, value_heads) fp32, at most 0
  View beta;  // (T, value_heads) fp32
  View out;   // (T, value_heads * value_dim), strided rows
};

// Everything is recomputed from the inputs. The gradient of a key head is the sum over its value heads, in order.
struct DeltaRuleBackward {
  DeltaRuleShape shape;
  Documents documents;
  View q, k, v, g, beta;   // the forward's inputs
  View grad_out;           // (T, value_heads * value_dim), strided rows
  View grad_q, grad_k;     // (T, key_heads * key_dim), strided rows; no gradient aliases an input
  View grad_v;             // (T, value_heads * value_dim), strided rows
  View grad_g, grad_beta;  // (T, value_heads) fp32
};

// New tokens of several sequences, for generation. A token at position 0 starts from a state of zeros.
struct DeltaRuleCached {
  DeltaRuleShape shape;      // tokens: T new ones of all sequences
  const int32_t* sequences;  // (T) the sequence of each new token; tokens of one sequence are adjacent
  const int32_t* positions;  // (T) ascending by one within a sequence
  View q, k;                 // (T, key_heads * key_dim), strided rows
  View v;                    // (T, value_heads * value_dim), strided rows
  View g, beta;              // (T, value_heads) fp32
  View state;                // (sequences * value_heads * key_dim, value_dim) fp32
  View out;                  // (T, value_heads * value_dim), strided rows
};

}  // namespace megatrain
