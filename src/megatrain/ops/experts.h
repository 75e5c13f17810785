// Mixtures of experts: a router chooses k of E experts for every token, and each chosen expert computes on that token.
//
// A (token, choice) is a pair, number t * k + j. Every pair owns a row. Rows lie by expert, ascending, and an expert's
// by pair, ascending: a stable counting sort, so that no order depends on timing. How many rows an expert has is data
// of the device, which no call waits for: buffers of rows hold the most there can be, and a call touches the rows there
// are.
//
// Experts are computed in groups of consecutive ones. A token's rows are added in order of their experts, ascending in
// forward and descending in backward, group after group into one fp32 sum, so that the groups change no bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megatrain/ops/elementwise.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

// What a token's weights are made of: the softmax over the chosen logits, the softmax over all, or the sigmoid of each
// chosen logit over their sum.
enum class RouterScore : uint8_t { softmax_of_chosen, softmax_of_all, sigmoid };

// The k largest of each row of logits, largest first, of equal ones the lower number first.
struct Route {
  View logits;       // (T, E) fp32
  View choice_bias;  // (E) fp32 or empty: added to the scores for the choice alone; sigmoid only
  RouterScore score = RouterScore::softmax_of_chosen;
  float scale = 1;             // multiplies the weights
  int64_t choices = 0;         // k
  int32_t* experts = nullptr;  // (T * k) out, by pair
  float* weights = nullptr;    // (T * k) out, by pair
};

struct RouteBackward {
  View logits;  // (T, E) fp32
  RouterScore score = RouterScore::softmax_of_chosen;
  float scale = 1;
  int64_t choices = 0;
  const int32_t* experts = nullptr;     // (T * k)
  const float* grad_weights = nullptr;  // (T * k)
  // Of the losses of the router, whose gradients go through softmax over all: the gradient by an expert's probability,
  // the same for every token, and by the square of the log-sum-exp. Both only in rows where `counted` is not 0.
  View grad_probability;  // (E) fp32 or empty
  float grad_squared_lse = 0;
  const int32_t* counted = nullptr;  // (T); nullptr: all rows
  View grad_logits;                  // (T, E) out, dtype of the activations
};

// begin[e] is expert e's first row, begin[E] = T * k.
struct SortByExpert {
  const int32_t* experts = nullptr;  // (T * k) by pair
  int64_t pairs = 0;                 // T * k
  int64_t count = 0;                 // E
  int32_t* begin = nullptr;          // (E + 1) out
  int32_t* pair_of_row = nullptr;    // (T * k) out
  int32_t* row_of_pair = nullptr;    // (T * k) out
};

// The rows of a group of experts. Buffers begin with the group's first row: expert i's rows are
// [begin[i] - begin[0], begin[i + 1] - begin[0]) of them.
struct ExpertRows {
  const int32_t* begin = nullptr;  // (experts + 1) device memory, into SortByExpert::begin
  // Where the group begins whose buffers they are, when these are only some of its experts, as a weight gradient may be
  // of: into the same array. nullptr: at `begin`.
  const int32_t* origin = nullptr;
  int64_t experts = 0;
  int64_t most = 0;      // rows that the buffers hold
  int64_t expected = 0;  // rows that equal loads would give: for costs alone

  const int32_t* first() const { return origin ? origin : begin; }  // of the buffers
};

// One matrix or row of each expert of a group, at equal distances.
struct ExpertWeights {
  View first;          // (N, K), or (1, N) for a bias; empty: there is none
  int64_t stride = 0;  // elements from one expert's to the next
  bool empty() const { return first.empty(); }
};

// out[r] = x[token of r]
struct GatherRows {
  View x;                                // (T, H)
  const int32_t* pair_of_row = nullptr;  // of the whole micro-batch
  int64_t choices = 0;
  ExpertRows rows;
  View out;  // (most, H)
};

// out = x weight^T + bias, rounded once; fp32 sums
struct ExpertsForward {
  ExpertRows rows;
  View x;                // (most, K)
  ExpertWeights weight;  // (N, K)
  ExpertWeights bias;    // (N) or empty
  View out;              // (most, N), dtype of x
};

// grad_x = grad_out weight
struct ExpertsBackwardInput {
  ExpertRows rows;
  View grad_out;         // (most, N)
  ExpertWeights weight;  // (N, K)
  View grad_x;           // (most, K)
};

// grad_weight = grad_out^T x, grad_bias = column sums of grad_out, each over the expert's rows in their order. Without
// rows the gradient is zero.
struct ExpertsBackwardWeight {
  ExpertRows rows;
  View grad_out;              // (most, N)
  View x;                     // (most, K)
  ExpertWeights grad_weight;  // (N, K) fp32, or empty
  ExpertWeights grad_bias;    // (N) fp32, or empty
  bool accumulate = false;    // += (true) or = (false)
};

// out = gated(gate_up) row by row, of the rows there are
struct ExpertsGated {
  ExpertRows rows;
  View gate_up;  // (most, 2F)
  View out;      // (most, F)
  Gate gate;
};

// Backward of weight * (gated(gate_up) down^T + bias), from the token's gradient dY and grad_act = dY down.
struct ExpertsGatedBackward {
  ExpertRows rows;
  const int32_t* pair_of_row = nullptr;  // of the whole micro-batch
  const float* weights = nullptr;        // (T * k) by pair
  View gate_up;                          // (most, 2F); overwritten with its gradient
  View grad_act;                         // (most, F) not weighted; overwritten with weight * gated(gate_up)
  View grad_y;                           // (most, H) rows of dY; overwritten with weight * dY where `bias` is not empty
  ExpertWeights bias;                    // (H) of the down product, or empty
  Gate gate;
  float* grad_weights = nullptr;  // (T * k) out, by pair: <grad_act, gated(gate_up)> + <dY, bias>
};

// The rows of a token added to its sum: sum[t] = from[t] + weight * row + ..., in order of the experts.
struct CombineRows {
  const int32_t* experts = nullptr;      // (T * k) by pair
  const int32_t* row_of_pair = nullptr;  // (T * k), of the whole micro-batch
  const float* weights = nullptr;        // (T * k) by pair; nullptr: each is 1
  int64_t choices = 0;
  int64_t first_expert = 0;  // of the group
  ExpertRows rows;
  View x;                   // (most, H)
  bool descending = false;  // experts from the last to the first
  View from;                // (T, H) of any dtype; empty: zero. May be `out`
  View out;                 // (T, H) fp32, or rounded once to its dtype
};

// What a micro-batch adds to the figures of a router: how often expert e was a token's choice j, choice_counts[j * E +
// e], and what the router's losses are made of.
struct CountExperts {
  const int32_t* experts = nullptr;  // (T * k) by pair
  const int32_t* counted = nullptr;  // (T) pairs of other tokens are left out; nullptr: all count
  View logits;                       // (T, E) fp32
  int64_t choices = 0;
  int64_t* choice_counts = nullptr;  // (k * E) +=
  double* probability = nullptr;     // (E) += softmax over all; summed over tokens in their order
  double* squared_lse = nullptr;     // (1) += likewise
  int64_t* tokens = nullptr;         // (1) += that count
};

// Where those figures of one router lie in a slab of 8-byte words.
struct RouterCounts {
  int64_t* choice_counts;  // (k * E)
  int64_t* tokens;         // (1)
  double* squared_lse;     // (1)
  double* probability;     // (E)

  static int64_t words(int64_t experts, int64_t choices) { return choices * experts + 2 + experts; }
  static RouterCounts within(std::byte* slab, int64_t experts, int64_t choices) {
    int64_t* words = reinterpret_cast<int64_t*>(slab);
    double* sums = reinterpret_cast<double*>(words + choices * experts + 1);
    return {words, words + choices * experts, sums, sums + 1};
  }
};

// The gradient by an expert's probability of the loss that balances the experts: factor times how often the expert was
// chosen, by any choice of any layer. Of whole numbers, so that no order decides its bits.
struct BalanceSlopes {
  const int64_t* choice_counts = nullptr;  // (k * E) of the first layer
  int64_t layers = 0;
  int64_t stride = 0;  // from one layer's counts to the next layer's
  int64_t choices = 0;
  int64_t experts = 0;
  double factor = 0;
  float* slopes = nullptr;  // (E) out: RouteBackward::grad_probability
};

}  // namespace megatrain
