// Mixtures of experts: a router chooses k of E experts for every token, and each chosen expert computes on that token.
//
// A (token, choice) is a pair, number t * k + j. Every pair owns a row. Rows are sorted by expert, then by pair. It is
// a stable counting sort, so that no order depends on timing. How many rows an expert has is known only on the device,
// and no call waits for it. So buffers of rows have the maximum size, and a call touches only the rows that exist.
//
// Experts are computed in groups of consecutive ones. A token's rows are added in order of their experts, ascending in
// forward and descending in backward. Group after group adds to one fp32 sum, so that the grouping changes no bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megatrain/ops/elementwise.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

// How a token's weights are computed: the softmax over the chosen logits, the softmax over all logits, or the sigmoids
// of the chosen logits divided by their sum.
enum class RouterScore : uint8_t { softmax_of_chosen, softmax_of_all, sigmoid };

// The k largest of each row of logits, largest first; among equal ones the lower index first. With several groups of
// consecutive experts, only those of some groups can be chosen: of the groups whose two largest scores have the largest
// sums, which include the bias.
struct Route {
  View logits;       // (T, E) fp32
  View choice_bias;  // (E) fp32 or empty: added to the scores only for choosing; sigmoid only
  RouterScore score = RouterScore::softmax_of_chosen;
  int64_t groups = 1;          // of E / groups experts each; more than one only with a choice_bias
  int64_t kept_groups = 1;     // from which a token chooses
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
  // Gradients of the router's losses, which go through the softmax over all logits. The first is with respect to an
  // expert's probability and the same for every token. The second is with respect to the squared log-sum-exp. Both
  // apply only to rows where `counted` is not 0.
  View grad_probability;  // (E) fp32 or empty
  float grad_squared_lse = 0;
  const int32_t* counted = nullptr;  // (T); nullptr: all rows
  View grad_logits;                  // (T, E) out, dtype of the activations
};

// A learned factor of each expert: weights[p] = shares[p] * factors[experts[p]].
struct ScaleChoices {
  const int32_t* experts = nullptr;  // (T * k) by pair
  const float* shares = nullptr;     // (T * k) by pair, as Route gives them
  int64_t pairs = 0;                 // T * k
  View factors;                      // (E)
  float* weights = nullptr;          // (T * k) out
};

// A factor's gradient is a sum over the expert's rows in order.
struct ScaleChoicesBackward {
  const int32_t* begin = nullptr;        // (E + 1) as in SortByExpert
  const int32_t* pair_of_row = nullptr;  // (T * k)
  const float* shares = nullptr;         // (T * k) by pair
  View factors;                          // (E)
  float* grad_weights = nullptr;         // (T * k) by pair; becomes the gradient of the shares
  View grad_factors;                     // (E) fp32; empty: not wanted
  bool accumulate = false;               // grad_factors += (true) or = (false)
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

// The rows of a group of experts. Buffers start at the group's first row: expert i's rows are [begin[i] - begin[0],
// begin[i + 1] - begin[0]) in them.
struct ExpertRows {
  const int32_t* begin = nullptr;  // (experts + 1) device memory, into SortByExpert::begin
  // Set if these are only some experts of a group, as for a weight gradient. It is then where the group that owns the
  // buffers starts, in the same array. nullptr: `begin`.
  const int32_t* origin = nullptr;
  int64_t experts = 0;
  int64_t most = 0;      // rows that the buffers can hold
  int64_t expected = 0;  // rows if the load were balanced; only for cost estimates

  const int32_t* first() const { return origin ? origin : begin; }  // start of the buffers
};

// One matrix or row per expert of a group, at equal distances.
struct ExpertWeights {
  View first;          // (N, K), or (1, N) for a bias; empty: absent
  int64_t stride = 0;  // elements from one expert to the next
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

// out = scale x weight^T + bias, rounded once; fp32 sums. With a bias the scale is 1.
struct ExpertsForward {
  ExpertRows rows;
  View x;                   // (most, K)
  ExpertWeights weight;     // (N, K)
  ExpertWeights bias;       // (N) or empty
  View out;                 // (most, N), dtype of x
  bool accumulate = false;  // += (true) or = (false); without a bias
  float scale = 1;
};

// grad_x = scale grad_out weight
struct ExpertsBackwardInput {
  ExpertRows rows;
  View grad_out;            // (most, N)
  ExpertWeights weight;     // (N, K)
  View grad_x;              // (most, K)
  bool accumulate = false;  // += (true) or = (false)
  float scale = 1;
};

// grad_weight = scale grad_out^T x, grad_bias = column sums of grad_out, each over the expert's rows in order. Without
// rows the gradient is zero.
struct ExpertsBackwardWeight {
  ExpertRows rows;
  View grad_out;              // (most, N)
  View x;                     // (most, K)
  ExpertWeights grad_weight;  // (N, K) fp32, or empty
  ExpertWeights grad_bias;    // (N) fp32, or empty
  bool accumulate = false;    // += (true) or = (false)
  float scale = 1;            // of the matrix; 1 if there is a bias
};

// out = gated(gate_up) for each existing row
struct ExpertsGated {
  ExpertRows rows;
  View gate_up;  // (most, 2F), or (most, F) without a gate
  View out;      // (most, F)
  Gate gate;
};

// Backward of weight * (gated(gate_up) down^T + bias), given the token's gradient dY and grad_act = dY down.
struct ExpertsGatedBackward {
  ExpertRows rows;
  const int32_t* pair_of_row = nullptr;  // of the whole micro-batch
  const float* weights = nullptr;        // (T * k) by pair
  View gate_up;                          // as in the forward; overwritten with its gradient
  View grad_act;                         // (most, F) not weighted; overwritten with weight * gated(gate_up)
  View grad_y;                           // (most, H) rows of dY; overwritten with weight * dY if `bias` is not empty
  ExpertWeights bias;                    // (H) of the down matmul, or empty
  Gate gate;
  float* grad_weights = nullptr;  // (T * k) out, by pair: <grad_act, gated(gate_up)> + <dY, bias>
};

// Adds the rows of each token to its sum: sum[t] = from[t] + weight * row + ..., in order of the experts.
struct CombineRows {
  const int32_t* experts = nullptr;      // (T * k) by pair
  const int32_t* row_of_pair = nullptr;  // (T * k), of the whole micro-batch
  const float* weights = nullptr;        // (T * k) by pair; nullptr: each is 1
  int64_t choices = 0;
  int64_t first_expert = 0;  // of the group
  ExpertRows rows;
  View x;                   // (most, H)
  bool descending = false;  // experts from the last to the first
  View from;                // (T, H) of any dtype; empty: zero. May alias `out`
  View out;                 // (T, H) fp32, or rounded once to its dtype
};

// What a micro-batch adds to the router's statistics. choice_counts[j * E + e] is how often expert e was choice j of a
// token. The router's losses are computed from the other sums.
struct CountExperts {
  const int32_t* experts = nullptr;  // (T * k) by pair
  const int32_t* counted = nullptr;  // (T) 0: the token's pairs are not counted; nullptr: all count
  View logits;                       // (T, E) fp32
  int64_t choices = 0;
  int64_t* choice_counts = nullptr;  // (k * E) +=
  double* probability = nullptr;     // (E) += softmax over all logits, summed over tokens in order
  double* squared_lse = nullptr;     // (1) +=, summed likewise
  int64_t* tokens = nullptr;         // (1) += number of counted tokens
};

// Layout of one router's statistics in a slab of 8-byte words.
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

// The gradient of the load balancing loss with respect to an expert's probability: factor times how often the expert
// was chosen, over all choices and layers. The counts are integers, so their order does not affect bits.
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
