// Cases of Mamba 2's ops, as in cases.h. Its convolution and its gated norm are in delta_cases.h.
#pragma once

#include "tests/ops/delta_cases.h"

namespace megatrain::testing {

struct SsdGatesCase {
  DType dtype;          // of dt
  DType weights_dtype;  // of a_log and dt_bias
  int64_t tokens, heads;
  int64_t gap = 0;
  bool accumulate = false;
  float amplitude = 1.0f;  // of dt
  bool in_place = false;   // grad_dt is dt
  bool limits = false;     // some steps lie beyond a limit
};

struct SsdCase {
  DType dtype;
  std::vector<int32_t> documents;
  int64_t heads, groups, head_dim, state_dim;
  float decay = 0.3f;  // typical size of g
  int64_t gap = 0;
  bool accumulate = false;
};

inline const std::vector<SsdGatesCase> kSsdGatesCases = {
    {DType::f32, DType::f32, 1, 1},
    {DType::f32, DType::f32, 9, 4, 3, true},
    {DType::f32, DType::f32, 300, 48, 0, false, 1.0f, true, true},
    {DType::f32, DType::f32, 30, 6, 2, true, 15.0f},
    {DType::bf16, DType::bf16, 150, 128, 16, true},
    {DType::bf16, DType::f32, 40, 5, 0, false, 2.0f, true, true},
};

inline const std::vector<SsdCase> kSsdCases = {
    {DType::f32, {1}, 1, 1, 8, 16},
    {DType::f32, {2, 3}, 2, 1, 16, 32, 0.3f, 4},
    {DType::f32, {63, 1, 64, 65}, 4, 2, 32, 16, 0.3f, 0, true},
    {DType::f32, {127, 3, 200}, 6, 2, 48, 16, 0.05f, 8},
    {DType::f32, {200, 2}, 2, 1, 32, 48, 3.0f},
    {DType::f32, {130}, 3, 1, 64, 128, 0.1f},
    {DType::f32, {70, 5}, 1, 1, 144, 208},
    {DType::f32, {40, 90}, 4, 2, 7, 5, 0.2f, 1},
    {DType::bf16, {2, 65}, 3, 1, 32, 16, 0.3f, 1},
    {DType::bf16, {64, 127, 1}, 4, 2, 32, 64, 0.1f, 16, true},
    {DType::bf16, {200, 64}, 2, 1, 64, 128, 0.02f},
};

inline std::string name_of(const SsdGatesCase& c) {
  return std::string("ssd_gates ") + dtype_name(c.dtype) + " " + sizes({c.tokens, c.heads}) +
         flags({{c.gap > 0, "gap"},
                {c.accumulate, "accumulate"},
                {c.amplitude > 1, "large"},
                {c.weights_dtype != c.dtype, "own dtype"},
                {c.in_place, "in-place"},
                {c.limits, "limits"}});
}
inline std::string name_of(const SsdCase& c) {
  return std::string("ssd ") + dtype_name(c.dtype) + " " + sizes({c.heads, c.groups, c.head_dim, c.state_dim}) +
         lengths_of(c.documents) + flags({{c.gap > 0, "gap"}, {c.accumulate, "accumulate"}});
}

}  // namespace megatrain::testing
