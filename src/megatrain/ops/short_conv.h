// Causal depthwise convolution over the tokens of a document, then SiLU unless `silu` is false. With K weights a
// channel:
//   y[t][c] = silu(bias[c] + sum over i of weight[c][i] * x[t - (K - 1) + i][c])
// Inputs before the document's first token are 0. K is 2, 3 or 4. Sums are fp32, from the bias on in order
// of i, and y is rounded once.
#pragma once

#include <cstdint>

#include "megatrain/ops/attention.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

inline constexpr int64_t kMostConvTaps = 4;  // K

struct ShortConvForward {
  Documents documents;
  View x;          // (T, C), strided rows
  View weight;     // (C, K)
  View bias = {};  // (C), or empty
  View out;        // (T, C), strided rows; not x
  bool silu = true;
};

struct ShortConvBackward {
  Documents documents;
  View x;               // (T, C) the forward's input
  View weight;          // (C, K)
  View bias = {};       // (C), or empty
  View grad_out;        // (T, C), strided rows
  View grad_x;          // (T, C), strided rows; neither x nor grad_out
  View grad_weight;     // (C, K) fp32; empty: not wanted
  View grad_bias = {};  // (C) fp32; empty: not wanted
  bool accumulate;      // gradients of parameters += (true) or = (false)
  bool silu = true;
};

// New tokens of several sequences, for generation. The window has the last K - 1 inputs of each sequence, oldest first;
// a call reads it and then replaces it. Positions below K - 1 read zeros, so a window need not be cleared for a new
// sequence.
struct ShortConvCached {
  const int32_t* sequences;  // (T) the sequence of each new token; tokens of one sequence are adjacent
  const int32_t* positions;  // (T) ascending by one within a sequence
  View x;                    // (T, C), strided rows
  View weight;               // (C, K)
  View bias = {};            // (C), or empty
  View window;               // (sequences * (K - 1), C) of x's dtype
  View out;                  // (T, C), strided rows; not x
  bool silu = true;
};

}  // namespace megatrain
