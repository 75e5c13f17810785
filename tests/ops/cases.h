// The single list of cases for each op. It drives the float64 finite differences, CUDA against CPU, and timing. Pure
// data: shapes, dtypes, flags. `gap` is by how much a row's stride exceeds its columns.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/ops/elementwise.h"
#include "megatrain/ops/experts.h"
#include "megatrain/tensor/dtype.h"

namespace megatrain::testing {

struct EmbeddingCase {
  DType dtype;
  int64_t rows, tokens, hidden;
  float scale = 1;
  bool holes = false;  // every third token has a negative index, which leaves its row as it is
};

struct RmsNormCase {
  DType dtype;
  int64_t rows, size;
  int64_t groups = 1;
  int64_t gap = 0;
  bool residual = false;
  bool accumulate = false;
  bool in_place = false;  // out is x; grad_x is grad_out
  float weight_offset = 0;
  bool adds = false;  // the forward adds a residual, which is in out unless out is x
  bool weightless = false;
  bool centred = false;
};

struct RopeCase {
  DType dtype;
  int64_t rows, heads, head_dim;
  int64_t gap = 0;
  int64_t rotary_dim = 0;  // 0: head_dim
  bool pairs = false;
};

struct LinearCase {
  DType dtype;
  int64_t rows, in, out;
  bool bias = false;
  bool accumulate = false;
  int64_t gap = 0;
  bool wide_out = false;  // out and grad_x are fp32 for any dtype
  float scale = 1;        // only in cases without a bias
};

// DoRA's factors of a weight (out, in), and what they scale.
struct DoraCase {
  DType dtype;
  int64_t rows, in, out, rank;
  float scale = 1;
  float offset = 0;
  bool bias = false;
  bool adds = false;        // a residual, which is in out
  bool accumulate = false;  // adds to the magnitudes' gradient
  int64_t gap = 0;
};

struct AttentionCase {
  DType dtype;
  std::vector<int32_t> documents;  // tokens in each
  int64_t heads, kv_heads, head_dim;
  int64_t window = 0;
  float scale = 0;  // 0: 1 / sqrt(head_dim)
  bool sinks = false;
  bool accumulate = false;  // adds to grad_sinks
  float cap = 0;
};

struct GatedCase {
  DType dtype;
  int64_t rows, size;
  bool in_place = false;  // grad_gate_up is gate_up
  Activation activation = Activation::silu;
  bool row_gate = false;
};

// Gates of single outputs, in a matrix whose rows also hold what they do not read.
struct OutputGateCase {
  DType dtype;
  int64_t rows, size;
  bool in_place = false;  // grad_x is grad_out
  GateForm form = GateForm::sigmoid;
};

// The router: route, its backward, and count_experts.
struct RouteCase {
  DType dtype;  // of grad_logits
  int64_t tokens, experts, choices;
  RouterScore score = RouterScore::softmax_of_chosen;
  float scale = 1;
  bool bias = false;         // on the choice
  bool losses = false;       // with router losses
  int64_t ignore_every = 0;  // every n-th token does not count; 0: all do
  bool ties = false;         // some rows have equal logits
  int64_t groups = 1, kept_groups = 1;
};

// Sorting, gathering and combining the rows of a group of experts.
struct ExpertRowsCase {
  DType dtype;
  int64_t tokens, hidden, experts, choices;
  int64_t first = 0, count = 0;  // of the group; count 0: all
};

struct ExpertsLinearCase {
  DType dtype;
  std::vector<int32_t> rows;  // per expert
  int64_t in, out;
  bool bias = false;
  bool accumulate = false;
  int64_t gap = 0;     // in rows, and between experts
  int32_t before = 0;  // rows of the experts before the group
};

struct ExpertsGatedCase {
  DType dtype;
  std::vector<int32_t> rows;  // per expert
  int64_t size, hidden;
  Gate gate{};
  bool bias = false;
  int32_t before = 0;  // rows of the experts before the group
};

struct CrossEntropyCase {
  DType dtype;
  int64_t rows, vocab;
  int64_t ignore_every = 0;  // every n-th label is ignored; 0: none
  bool ties = false;         // some rows have equal largest logits
  float amplitude = 1.0f;    // of the logits
  bool token_scales = false;
  float cap = 0;
};

struct FinishGradientCase {
  DType dtype;  // of the rounded gradient
  int64_t count;
  int64_t parts = 1;
};

struct SumLossesCase {
  DType dtype;  // unused by the op; fp32
  int64_t tokens;
};

inline const std::vector<EmbeddingCase> kEmbeddingCases = {
    {DType::f32, 1, 1, 1},
    {DType::f32, 5, 40, 7},
    {DType::f32, 13, 9, 64},
    {DType::f32, 40, 300, 600},
    {DType::bf16, 5, 40, 7},
    {DType::bf16, 3, 100, 33},
    {DType::bf16, 64, 200, 520},
    {DType::f32, 5, 40, 7, 25.298221f},
    {DType::f32, 40, 300, 600, 0.3f},
    {DType::bf16, 9, 70, 41, 25.25f},
    {DType::bf16, 64, 200, 520, 33.75f},
    {DType::f32, 5, 40, 7, 1, true},
    {DType::bf16, 9, 70, 41, 25.25f, true},
    {DType::bf16, 64, 200, 520, 1, true},
};

inline const std::vector<RmsNormCase> kRmsNormCases = {
    {DType::f32, 1, 1},
    {DType::f32, 3, 7},
    {DType::f32, 5, 64, 1, 3, true, true},
    {DType::f32, 4, 20, 3, 11, false, true},
    {DType::f32, 6, 16, 4, 0, false, false, true},
    {DType::f32, 37, 1100, 1, 0, true, false, true},
    {DType::bf16, 5, 64, 1, 0, true, true},
    {DType::bf16, 9, 24, 5, 7, false, true, true},
    {DType::bf16, 70, 1537, 1, 1, true},
    {DType::f32, 3, 7, 1, 0, false, false, false, 1.0f},
    {DType::f32, 5, 64, 1, 3, true, true, false, 1.0f, true},
    {DType::f32, 6, 16, 4, 0, false, false, true, 1.0f},
    {DType::f32, 37, 1100, 1, 0, true, false, true, 1.0f, true},
    {DType::f32, 11, 40, 1, 2, false, false, false, 0.0f, true},
    {DType::bf16, 5, 64, 1, 0, true, true, false, 1.0f, true},
    {DType::bf16, 9, 24, 5, 7, false, true, true, 1.0f},
    {DType::bf16, 70, 1537, 1, 1, true, false, false, 1.0f, true},
    {DType::f32, 6, 16, 4, 3, true, false, true, 0.0f, false, true},
    {DType::bf16, 9, 24, 5, 0, false, false, false, 0.0f, false, true},
    // Centred, two elements are 1 and -1 whatever they were: their gradient would be rounding alone.
    {DType::f32, 1, 3, 1, 0, false, false, false, 0.0f, false, false, true},
    {DType::f32, 5, 64, 1, 3, true, true, false, 0.0f, false, false, true},
    {DType::f32, 37, 1100, 1, 0, true, false, true, 0.0f, true, false, true},
    {DType::f32, 4, 20, 3, 11, false, true, false, 1.0f, false, false, true},
    {DType::bf16, 70, 1537, 1, 1, true, false, false, 0.0f, false, false, true},
    {DType::bf16, 9, 24, 5, 0, false, false, true, 0.0f, false, true, true},
};

inline const std::vector<RopeCase> kRopeCases = {
    {DType::f32, 1, 1, 2},
    {DType::f32, 5, 3, 6, 5},
    {DType::f32, 40, 6, 64, 64},
    {DType::f32, 3, 1, 2080},
    {DType::bf16, 7, 2, 10, 3},
    {DType::bf16, 300, 9, 128},
    {DType::f32, 5, 3, 7, 5, 2},
    {DType::f32, 9, 4, 64, 0, 48},
    {DType::f32, 8, 3, 24, 8, 16},
    {DType::bf16, 7, 2, 11, 3, 6},
    {DType::bf16, 60, 9, 128, 0, 96},
    {DType::bf16, 8, 3, 24, 8, 16},
    {DType::bf16, 8, 3, 20, 0, 16},
    {DType::f32, 5, 3, 7, 5, 6, true},
    {DType::f32, 9, 4, 64, 0, 32, true},
    {DType::f32, 3, 1, 2080, 0, 0, true},
    {DType::bf16, 7, 2, 10, 3, 6, true},
    {DType::bf16, 60, 9, 128, 8, 64, true},
};

inline const std::vector<LinearCase> kLinearCases = {
    {DType::f32, 1, 1, 1},
    {DType::f32, 3, 5, 7, true},
    {DType::f32, 9, 4, 6, true, true, 5},
    {DType::f32, 64, 64, 64},
    {DType::f32, 65, 33, 257, true, true, 1},
    {DType::f32, 130, 700, 300, true, false, 12},
    {DType::f32, 70, 513, 3, false, true},
    {DType::bf16, 5, 6, 4, true, true, 3},
    {DType::bf16, 66, 130, 258, true, false, 8},
    {DType::bf16, 129, 600, 70, false, true, 0, true},
    {DType::bf16, 33, 40, 24, true, false, 0, true},
    {DType::f32, 1, 1028, 71, true, true},
    {DType::f32, 4, 36, 130, false, false, 8},
    {DType::bf16, 1, 2056, 70, true, true, 8},
    {DType::bf16, 2, 264, 33, false, true, 0, true},
    {DType::bf16, 3, 8, 5, true},
    {DType::bf16, 4, 1000, 129, true, false, 16, true},
    {DType::f32, 65, 33, 257, false, true, 1, false, 0.22f},
    {DType::f32, 2, 36, 130, false, false, 0, false, -3.5f},
    {DType::bf16, 66, 130, 258, false, true, 8, false, 0.22f},
    {DType::bf16, 129, 600, 70, false, true, 0, true, 1.7f},
    {DType::bf16, 3, 264, 33, false, true, 0, false, 0.125f},
};

inline const std::vector<AttentionCase> kAttentionCases = {
    {DType::f32, {1}, 1, 1, 1},
    {DType::f32, {5, 1, 9}, 4, 2, 6, 0, 0.9f, false, false, 0.5f},
    {DType::f32, {140, 65}, 2, 1, 16, 50, 0, true, true, 0.8f},
    {DType::bf16, {130, 40}, 8, 1, 64, 0, 0, false, false, 0.4f},
    {DType::bf16, {70}, 2, 1, 256, 20, 0.11f, false, false, 1.5f},
    {DType::f32, {7}, 2, 2, 3},
    {DType::f32, {5, 1, 9}, 4, 2, 6},
    {DType::f32, {6, 11}, 8, 1, 5, 4},
    {DType::f32, {3, 70, 2}, 4, 1, 20},
    {DType::f32, {140, 65}, 2, 1, 16, 50},
    {DType::f32, {300}, 2, 2, 32},
    {DType::f32, {64, 64, 64}, 8, 2, 24},
    {DType::f32, {200}, 2, 2, 8, 1},
    {DType::bf16, {5, 1, 9}, 4, 2, 6},
    {DType::bf16, {130, 40}, 8, 1, 64},
    {DType::bf16, {129, 1, 70}, 4, 4, 80, 33},
    {DType::bf16, {64, 64}, 8, 2, 128},
    {DType::f32, {5, 1, 9}, 4, 2, 6, 0, 0.9f},
    {DType::f32, {70}, 2, 1, 256, 20, 0.11f},
    {DType::bf16, {64, 64}, 4, 1, 256, 0, 0.0625f},
    {DType::bf16, {50, 90}, 4, 1, 256, 32, 0.0770f},
    {DType::f32, {1}, 1, 1, 1, 0, 0, true},
    {DType::f32, {5, 1, 9}, 4, 2, 6, 0, 0, true, true},
    {DType::f32, {6, 11}, 8, 1, 5, 4, 0, true},
    {DType::f32, {140, 65}, 2, 1, 16, 50, 0, true},
    {DType::f32, {64, 64, 64}, 8, 2, 24, 0, 0, true, true},
    {DType::bf16, {5, 1, 9}, 4, 2, 6, 0, 0, true},
    {DType::bf16, {129, 1, 70}, 4, 4, 80, 33, 0, true},
    {DType::bf16, {64, 64}, 8, 1, 64, 0, 0, true, true},
    {DType::bf16, {130, 40}, 8, 1, 64, 100, 0, true},
    {DType::f32, {40, 9}, 4, 2, 320, 0, 0.06f},
    {DType::bf16, {70}, 2, 1, 512, 0, 0.05f},
    {DType::bf16, {64, 64}, 4, 2, 320, 0, 0.05f},
    {DType::bf16, {3, 65, 1, 60}, 4, 1, 512, 33, 0.05f},
    {DType::bf16, {33, 40}, 2, 2, 504, 7, 0.05f, true},
};

inline const std::vector<GatedCase> kGatedCases = {
    {DType::f32, 1, 1},
    {DType::f32, 3, 5, true},
    {DType::f32, 20, 1300},
    {DType::bf16, 3, 5},
    {DType::bf16, 40, 777, true},
    {DType::f32, 3, 5, true, Activation::gelu_tanh},
    {DType::f32, 20, 1300, false, Activation::gelu_tanh},
    {DType::bf16, 3, 5, false, Activation::gelu_tanh},
    {DType::bf16, 40, 777, true, Activation::gelu_tanh},
    {DType::f32, 3, 5, true, Activation::gelu_sigmoid},
    {DType::f32, 20, 1300, false, Activation::gelu_sigmoid},
    {DType::bf16, 40, 777, true, Activation::gelu_sigmoid},
    {DType::f32, 3, 5, true, Activation::relu_squared},
    {DType::f32, 20, 1300, false, Activation::relu_squared, true},
    {DType::bf16, 40, 777, true, Activation::relu_squared},
    {DType::bf16, 12, 136, false, Activation::relu_squared},
    {DType::f32, 1, 1, false, Activation::silu, true},
    {DType::f32, 7, 5, true, Activation::silu, true},
    {DType::f32, 20, 1300, false, Activation::gelu_tanh, true},
    {DType::bf16, 40, 777, true, Activation::silu, true},
};

inline const std::vector<OutputGateCase> kOutputGateCases = {
    {DType::f32, 7, 5, true, GateForm::silu},
    {DType::f32, 5, 1300, false, GateForm::plain},
    {DType::bf16, 40, 777, false, GateForm::silu},
    {DType::bf16, 9, 136, true, GateForm::plain},
    {DType::f32, 1, 1},
    {DType::f32, 3, 5, true},
    {DType::f32, 20, 600},
    {DType::bf16, 7, 12},
    {DType::bf16, 40, 777, true},
};

inline const std::vector<RouteCase> kRouteCases = {
    {DType::f32, 1, 1, 1},
    {DType::f32, 9, 4, 4},
    {DType::f32, 30, 8, 2, RouterScore::softmax_of_chosen, 1, false, true},
    {DType::f32, 25, 32, 4, RouterScore::softmax_of_chosen, 1, false, true, 3},
    {DType::f32, 12, 16, 4, RouterScore::softmax_of_chosen, 1, false, false, 0, true},
    {DType::f32, 20, 8, 1, RouterScore::softmax_of_all},
    {DType::f32, 17, 20, 8, RouterScore::softmax_of_all, 1, false, true, 4},
    {DType::f32, 40, 128, 8, RouterScore::softmax_of_all, 2.5f},
    {DType::f32, 10, 6, 2, RouterScore::softmax_of_all, 1, false, true, 0, true},
    {DType::f32, 15, 8, 2, RouterScore::sigmoid},
    {DType::f32, 40, 40, 8, RouterScore::sigmoid, 2.5f, true},
    {DType::f32, 11, 12, 1, RouterScore::sigmoid, 1.5f, true, true, 2},
    {DType::bf16, 30, 8, 2, RouterScore::softmax_of_chosen, 1, false, true, 5},
    {DType::bf16, 200, 128, 4},
    {DType::bf16, 60, 64, 8, RouterScore::softmax_of_all, 1, false, true},
    {DType::bf16, 50, 32, 8, RouterScore::sigmoid, 2.5f, true},
    {DType::f32, 30, 12, 3, RouterScore::sigmoid, 2.5f, true, false, 0, false, 4, 2},
    {DType::f32, 25, 64, 8, RouterScore::sigmoid, 1, true, false, 0, true, 8, 4},
    {DType::bf16, 40, 256, 8, RouterScore::sigmoid, 2.5f, true, false, 0, false, 8, 4},
};

inline const std::vector<ExpertRowsCase> kExpertRowsCases = {
    {DType::f32, 1, 1, 1, 1},
    {DType::f32, 9, 7, 5, 2},
    {DType::f32, 40, 33, 8, 1},
    {DType::f32, 50, 64, 6, 4, 2, 3},
    {DType::f32, 70, 600, 20, 8, 12, 8},
    {DType::f32, 30, 12, 9, 2, 0, 1},
    {DType::bf16, 9, 7, 5, 2},
    {DType::bf16, 300, 136, 32, 4},
    {DType::bf16, 100, 520, 16, 8, 4, 5},
    {DType::bf16, 64, 24, 8, 1, 7, 1},
};

inline const std::vector<ExpertsLinearCase> kExpertsLinearCases = {
    {DType::f32, {1}, 1, 1},
    {DType::f32, {3, 0, 5}, 5, 7, true},
    {DType::f32, {0, 0}, 6, 4, true},
    {DType::f32, {0, 9, 1}, 4, 6, true, true, 5, 11},
    {DType::f32, {64, 1, 65, 0}, 33, 130, true, true, 1},
    {DType::f32, {70, 3, 0, 200, 12}, 300, 40, false, false, 12, 100},
    {DType::f32, {7, 0, 8}, 36, 24, false, true, 4},
    {DType::bf16, {5, 0, 6}, 6, 4, true, true, 3},
    {DType::bf16, {66, 0, 130, 1}, 130, 64, true, false, 8, 40},
    {DType::bf16, {0, 33, 128, 0, 257}, 96, 72, false, true},
    {DType::bf16, {4, 2}, 264, 40, true, false, 16},
};

// Limits that are not bf16 numbers, so that no stored value lies at the kink.
inline const std::vector<ExpertsGatedCase> kExpertsGatedCases = {
    {DType::f32, {1}, 1, 1},
    {DType::f32, {3, 0, 2}, 5, 4, {}, true},
    {DType::f32, {2, 3}, 6, 3, {Activation::gelu_sigmoid, 2.003f, 1.0f}, true, 5},
    {DType::f32, {10, 0, 7}, 1300, 600, {Activation::gelu_sigmoid, 2.003f, 1.0f}},
    {DType::f32, {4, 4}, 20, 8, {Activation::silu, 1.501f, 0.0f}, false, 3},
    {DType::f32, {4, 5}, 20, 8, {Activation::gelu_tanh, 0.0f, 0.5f}, true},
    {DType::bf16, {3, 0, 2}, 5, 4, {}, true, 2},
    {DType::bf16, {0, 30, 11}, 777, 520, {Activation::gelu_sigmoid, 2.003f, 1.0f}, true},
    {DType::bf16, {20, 20}, 136, 64},
    {DType::f32, {3, 0, 2}, 5, 4, {Activation::relu_squared}},
    {DType::f32, {4, 5}, 20, 8, {Activation::relu_squared}, true},
    {DType::bf16, {0, 30, 11}, 777, 520, {Activation::relu_squared}, false, 2},
};

inline const std::vector<DoraCase> kDoraCases = {
    {DType::f32, 1, 1, 1, 1},
    {DType::f32, 3, 5, 7, 2, 1.5f, 0, true},
    {DType::f32, 9, 600, 13, 4, 0.5f, -1, false, true, true, 3},
    {DType::f32, 17, 33, 260, 8, 2, 0, true, true},
    {DType::bf16, 5, 7, 9, 3, 1.25f, 0, true, false, true, 1},
    {DType::bf16, 70, 136, 72, 8, 2, -1, false, true, false, 8},
    {DType::bf16, 33, 520, 40, 16, 0.75f, 0, true, true, true},
};

inline const std::vector<CrossEntropyCase> kCrossEntropyCases = {
    {DType::f32, 1, 1},
    {DType::f32, 4, 7, 2},
    {DType::f32, 6, 50, 3, true},
    {DType::f32, 5, 2049, 4},
    {DType::f32, 9, 600, 0, false, 30.0f},
    {DType::f32, 6, 50, 3, false, 1.0f, true},
    {DType::bf16, 5, 700, 4, false, 1.0f, true},
    {DType::bf16, 6, 50, 3, true},
    {DType::bf16, 7, 1500, 5, false, 4.0f},
    {DType::f32, 6, 50, 3, true, 4.0f, true, 5.0f},
    {DType::bf16, 7, 600, 3, false, 4.0f, false, 6.0f},
};

inline const std::vector<FinishGradientCase> kFinishGradientCases = {
    {DType::f32, 1},
    {DType::f32, 65536},
    {DType::f32, 200001},
    {DType::bf16, 3},
    {DType::bf16, 65537},
    {DType::bf16, 300000},
    {DType::f32, 3 * 70001, 3},
    {DType::bf16, 5 * 128, 5},
    {DType::bf16, 4 * 131200, 4},
};

inline const std::vector<SumLossesCase> kSumLossesCases = {{DType::f32, 1}, {DType::f32, 100003}};

// Names: what a failing case prints.
inline std::string flags(std::initializer_list<std::pair<bool, const char*>> list) {
  std::string text;
  for (const auto& [set, name] : list) {
    if (set) text.append(" ").append(name);
  }
  return text;
}
inline std::string sizes(std::initializer_list<int64_t> list) {
  std::string text;
  for (int64_t size : list) text.append(text.empty() ? "" : "x").append(std::to_string(size));
  return text;
}
inline std::string name_of(const EmbeddingCase& c) {
  return std::string("embedding ") + dtype_name(c.dtype) + " " + sizes({c.rows, c.tokens, c.hidden}) +
         flags({{c.scale != 1, "scaled"}, {c.holes, "holes"}});
}
inline std::string name_of(const RmsNormCase& c) {
  return std::string("rmsnorm ") + dtype_name(c.dtype) + " " + sizes({c.rows, c.groups, c.size}) +
         flags({{c.gap > 0, "gap"},
                {c.residual, "residual"},
                {c.accumulate, "accumulate"},
                {c.in_place, "in-place"},
                {c.weight_offset != 0, "offset"},
                {c.adds, "adds"},
                {c.weightless, "weightless"},
                {c.centred, "centred"}});
}
inline std::string name_of(const RopeCase& c) {
  return std::string("rope ") + dtype_name(c.dtype) + " " + sizes({c.rows, c.heads, c.head_dim}) +
         flags({{c.gap > 0, "gap"}, {c.rotary_dim > 0, "partial"}, {c.pairs, "pairs"}});
}
inline std::string name_of(const LinearCase& c) {
  return std::string("linear ") + dtype_name(c.dtype) + " " + sizes({c.rows, c.in, c.out}) +
         flags({{c.bias, "bias"},
                {c.accumulate, "accumulate"},
                {c.gap > 0, "gap"},
                {c.wide_out, "wide-out"},
                {c.scale != 1, "scale"}});
}
inline std::string name_of(const DoraCase& c) {
  return std::string("dora ") + dtype_name(c.dtype) + " " + sizes({c.rows, c.in, c.out, c.rank}) +
         flags({{c.offset != 0, "offset"},
                {c.bias, "bias"},
                {c.adds, "adds"},
                {c.accumulate, "accumulate"},
                {c.gap > 0, "gap"}});
}
inline std::string name_of(const AttentionCase& c) {
  std::string text = std::string("attention ") + dtype_name(c.dtype) + " " + sizes({c.heads, c.kv_heads, c.head_dim});
  text.append(" documents");
  for (int32_t size : c.documents) text.append(" ").append(std::to_string(size));
  if (c.window > 0) text.append(" window ").append(std::to_string(c.window));
  if (c.scale > 0) text.append(" scale ").append(std::to_string(c.scale));
  if (c.cap > 0) text.append(" cap ").append(std::to_string(c.cap));
  return text + flags({{c.sinks, "sinks"}, {c.accumulate, "accumulate"}});
}
inline std::string name_of(Activation activation) {
  switch (activation) {
    case Activation::silu: return "swiglu";
    case Activation::gelu_tanh: return "geglu";
    case Activation::gelu_sigmoid: return "geglu-by-sigmoid";
    case Activation::relu_squared: return "squared-relu";
  }
  return {};
}
inline std::string name_of(const GatedCase& c) {
  return name_of(c.activation) + " " + dtype_name(c.dtype) + " " + sizes({c.rows, c.size}) +
         flags({{c.in_place, "in-place"}, {c.row_gate, "row gates"}});
}
inline std::string name_of(const OutputGateCase& c) {
  return std::string("output-gate ") + dtype_name(c.dtype) + " " + sizes({c.rows, c.size}) +
         flags({{c.in_place, "in-place"}, {c.form == GateForm::silu, "silu"}, {c.form == GateForm::plain, "plain"}});
}
inline std::string rows_of_experts(const std::vector<int32_t>& rows) {
  std::string text = " rows";
  for (int32_t size : rows) text.append(" ").append(std::to_string(size));
  return text;
}
inline std::string name_of(const RouteCase& c) {
  return std::string("route ") + dtype_name(c.dtype) + " " + sizes({c.tokens, c.experts, c.choices}) +
         flags({{c.score == RouterScore::softmax_of_all, "softmax-of-all"},
                {c.score == RouterScore::sigmoid, "sigmoid"},
                {c.scale != 1, "scaled"},
                {c.bias, "bias"},
                {c.losses, "losses"},
                {c.ignore_every > 0, "ignored"},
                {c.ties, "ties"},
                {c.groups > 1, "groups"}});
}
inline std::string name_of(const ExpertRowsCase& c) {
  return std::string("expert rows ") + dtype_name(c.dtype) + " " + sizes({c.tokens, c.hidden, c.experts, c.choices}) +
         " group " + std::to_string(c.first) + " " + std::to_string(c.count);
}
inline std::string name_of(const ExpertsLinearCase& c) {
  return std::string("experts linear ") + dtype_name(c.dtype) + " " + sizes({c.in, c.out}) + rows_of_experts(c.rows) +
         flags({{c.bias, "bias"}, {c.accumulate, "accumulate"}, {c.gap > 0, "gap"}, {c.before > 0, "later"}});
}
inline std::string name_of(const ExpertsGatedCase& c) {
  return "experts " + name_of(c.gate.activation) + " " + dtype_name(c.dtype) + " " + sizes({c.size, c.hidden}) +
         rows_of_experts(c.rows) +
         flags({{c.gate.limit > 0, "limit"},
                {c.gate.up_offset != 0, "offset"},
                {c.bias, "bias"},
                {c.before > 0, "later"}});
}
inline std::string name_of(const CrossEntropyCase& c) {
  return std::string("cross_entropy ") + dtype_name(c.dtype) + " " + sizes({c.rows, c.vocab}) +
         flags({{c.ignore_every > 0, "ignored"},
                {c.ties, "ties"},
                {c.amplitude > 1, "large"},
                {c.cap > 0, "capped"},
                {c.token_scales, "token scales"}});
}
inline std::string name_of(const FinishGradientCase& c) {
  return std::string("finish_gradient ") + dtype_name(c.dtype) + " " + sizes({c.count / c.parts, c.parts});
}
inline std::string name_of(const SumLossesCase& c) { return "sum_losses " + sizes({c.tokens}); }

}  // namespace megatrain::testing
