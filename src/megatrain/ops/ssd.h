// The state space recurrence of Mamba 2 (SSD). The state H, a matrix for each head, starts at zero in every document.
// For each token:
//   H = exp(g) H + step b x^T;  out = H^T c + skip x
// Head h reads b and c of group h / (heads / groups). `skip` is one number a head.
//
// Training computes chunks of tokens at a time, by matmuls; generation computes the recurrence. Chunks are counted from
// each document's start, so a document's bits do not depend on what else is in the micro-batch.
#pragma once

#include <cstdint>

#include "megatrain/ops/attention.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

inline constexpr int64_t kSsdChunk = 64;     // tokens
inline constexpr int64_t kMostSsdDim = 256;  // of a head, and of its state

struct SsdShape {
  int64_t tokens = 0;  // T of a micro-batch
  int64_t heads = 0;   // a multiple of groups; 0: the model has no such recurrence
  int64_t groups = 0;
  int64_t head_dim = 0;   // P
  int64_t state_dim = 0;  // N
};

struct SsdForward {
  SsdShape shape;
  Documents documents;
  View x;     // (T, heads * P), strided rows
  View b;     // (T, groups * N), strided rows
  View c;     // (T, groups * N), strided rows
  View step;  // (T, heads) fp32
  View g;     // (T, heads) fp32, at most 0
  View skip;  // (heads)
  View out;   // (T, heads * P), strided rows
};

// Everything is recomputed from the inputs. The gradients of b and c are sums over the heads of a group, in order.
struct SsdBackward {
  SsdShape shape;
  Documents documents;
  View x, b, c, step, g, skip;  // the forward's inputs
  View grad_out;                // (T, heads * P), strided rows
  View grad_x;                  // (T, heads * P), strided rows; no gradient aliases an input
  View grad_b, grad_c;          // (T, groups * N), strided rows
  View grad_step, grad_g;       // (T, heads) fp32
  View grad_skip;               // (heads) fp32; empty: not wanted
  bool accumulate;              // grad_skip += (true) or = (false)
};

// New tokens of several sequences, for generation. A token at position 0 starts from a state of zeros.
struct SsdCached {
  SsdShape shape;            // tokens: T new ones of all sequences
  const int32_t* sequences;  // (T) the sequence of each new token; tokens of one sequence are adjacent
  const int32_t* positions;  // (T) ascending by one within a sequence
  View x, b, c, step, g, skip;
  View state;  // (sequences * heads * N, P) fp32
  View out;    // (T, heads * P), strided rows
};

}  // namespace megatrain
