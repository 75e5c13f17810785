// Cases of the ops of a gated delta net, as in cases.h.
#pragma once

#include "tests/ops/cases.h"

namespace megatrain::testing {

struct ShortConvCase {
  DType dtype;
  std::vector<int32_t> documents;  // tokens in each
  int64_t channels, taps = 4;
  int64_t gap = 0;
  bool accumulate = false;
  bool frozen = false;  // no gradient of the weight
  bool bias = false;
  bool plain = false;  // without SiLU
};

struct DeltaGatesCase {
  DType dtype;          // of a and b
  DType weights_dtype;  // of a_log and dt_bias
  int64_t tokens, heads;
  int64_t gap = 0;
  bool accumulate = false;
  float amplitude = 1.0f;  // of a and b
  bool in_place = false;   // grad_a is a, and grad_b is b
};

struct DeltaRuleCase {
  DType dtype;
  std::vector<int32_t> documents;
  int64_t key_heads, value_heads, key_dim, value_dim;
  float decay = 0.3f;  // typical size of g
  int64_t gap = 0;
};

struct GatedNormCase {
  DType dtype;
  int64_t rows, heads, size;
  int64_t gap = 0;
  bool accumulate = false;
  bool in_place = false;  // grad_x is grad_out, grad_z is z
  bool gate_first = false;
  bool wide = false;  // a weight of the row's size
};

inline const std::vector<ShortConvCase> kShortConvCases = {
    {DType::f32, {1}, 1},
    {DType::f32, {1, 2, 3, 4, 5}, 3, 4, 2, true},
    {DType::f32, {300, 9}, 40, 3},
    {DType::f32, {65, 1, 70}, 64, 2, 5},
    {DType::f32, {300, 260}, 132, 4, 4, true},
    {DType::f32, {6, 11}, 5, 4, 0, false, true},
    {DType::f32, {1, 2, 3, 4, 5}, 3, 4, 2, true, false, true},
    {DType::f32, {300, 260}, 132, 4, 4, false, false, true},
    {DType::f32, {65, 1, 70}, 33, 3, 0, false, true, true},
    {DType::bf16, {3, 1, 9}, 7, 4, 1, true},
    {DType::bf16, {140, 2, 120}, 72, 4, 8},
    {DType::bf16, {140, 2, 120}, 72, 4, 8, true, false, true},
    {DType::f32, {1, 2, 3, 4, 5}, 3, 3, 2, true, false, true, true},
    {DType::f32, {300, 260}, 132, 3, 4, false, false, false, true},
    {DType::bf16, {140, 2, 120}, 72, 3, 8, false, false, true, true},
};

inline const std::vector<DeltaGatesCase> kDeltaGatesCases = {
    {DType::f32, DType::f32, 1, 1},
    {DType::f32, DType::f32, 9, 4, 3, true},
    {DType::f32, DType::f32, 300, 32, 0, false, 1.0f, true},
    {DType::f32, DType::f32, 30, 6, 2, true, 15.0f},
    {DType::bf16, DType::bf16, 150, 48, 16, true},
    {DType::bf16, DType::f32, 40, 5, 0, false, 1.0f, true},
};

inline const std::vector<DeltaRuleCase> kDeltaRuleCases = {
    {DType::f32, {1}, 1, 1, 16, 16},
    {DType::f32, {2, 3}, 1, 2, 16, 32, 0.3f, 4},
    {DType::f32, {63, 1, 64, 65}, 2, 2, 32, 16},
    {DType::f32, {127, 3, 200}, 2, 6, 16, 48, 0.05f, 8},
    {DType::f32, {200, 2}, 1, 2, 48, 32, 3.0f},
    {DType::f32, {130}, 1, 2, 128, 128, 0.1f},
    {DType::f32, {70, 5}, 1, 1, 208, 144},
    {DType::bf16, {2, 65}, 1, 3, 16, 32, 0.3f, 1},
    {DType::bf16, {64, 127, 1}, 2, 4, 64, 32, 0.1f, 16},
    {DType::bf16, {200, 64}, 1, 2, 128, 128, 0.02f},
};

inline const std::vector<GatedNormCase> kGatedNormCases = {
    {DType::f32, 1, 1, 16},
    {DType::f32, 9, 3, 20, 5, true},
    {DType::f32, 70, 4, 128, 0, false, true},
    {DType::f32, 5, 2, 256, 8, true},
    {DType::bf16, 9, 3, 24, 7, true, true},
    {DType::bf16, 80, 4, 128, 16},
    {DType::f32, 1, 1, 16, 0, false, false, true},
    {DType::f32, 9, 3, 20, 5, true, false, true, true},
    {DType::f32, 70, 1, 1100, 4, false, true, true, true},
    {DType::f32, 6, 4, 24, 0, true, false, false, true},
    {DType::f32, 300, 2, 40, 0, true, false, true},
    {DType::bf16, 9, 3, 24, 7, true, true, true, true},
    {DType::bf16, 80, 2, 520, 8, false, false, true, true},
};

inline std::string lengths_of(const std::vector<int32_t>& documents) {
  std::string text = " documents";
  for (int32_t size : documents) text.append(" ").append(std::to_string(size));
  return text;
}
inline std::string name_of(const ShortConvCase& c) {
  return std::string("short_conv ") + dtype_name(c.dtype) + " " + sizes({c.channels, c.taps}) +
         lengths_of(c.documents) +
         flags({{c.gap > 0, "gap"},
                {c.accumulate, "accumulate"},
                {c.frozen, "frozen"},
                {c.bias, "bias"},
                {c.plain, "plain"}});
}
inline std::string name_of(const DeltaGatesCase& c) {
  return std::string("delta_gates ") + dtype_name(c.dtype) + " " + sizes({c.tokens, c.heads}) +
         flags({{c.gap > 0, "gap"},
                {c.accumulate, "accumulate"},
                {c.amplitude > 1, "large"},
                {c.weights_dtype != c.dtype, "own dtype"},
                {c.in_place, "in-place"}});
}
inline std::string name_of(const DeltaRuleCase& c) {
  return std::string("delta_rule ") + dtype_name(c.dtype) + " " +
         sizes({c.key_heads, c.value_heads, c.key_dim, c.value_dim}) + lengths_of(c.documents) +
         flags({{c.gap > 0, "gap"}});
}
inline std::string name_of(const GatedNormCase& c) {
  return std::string("gated_norm ") + dtype_name(c.dtype) + " " + sizes({c.rows, c.heads, c.size}) +
         flags({{c.gap > 0, "gap"},
                {c.accumulate, "accumulate"},
                {c.in_place, "in-place"},
                {c.gate_first, "gate first"},
                {c.wide, "wide weight"}});
}

}  // namespace megatrain::testing
