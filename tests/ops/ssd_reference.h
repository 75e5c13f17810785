// Mamba 2's ops in float64, written from their definitions.
#pragma once

#include <algorithm>
#include <cmath>

#include "tests/ops/run_ssd_cases.h"

namespace megatrain::testing {

inline Values reference(const SsdGatesCase& c, const Values& in) {
  Vector out(in.at("grad_out").size());
  const StepLimits limits = limits_of(c);
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t i = t * c.heads + h;
      const double x = in.at("dt")[i] + in.at("dt_bias")[h], free = x > 30 ? x : std::log1p(std::exp(x));
      out[i] = std::clamp(free, static_cast<double>(limits.least), static_cast<double>(limits.most));
      out[c.tokens * c.heads + i] = -std::exp(in.at("a_log")[h]) * out[i];
    }
  }
  return {{"out", out}};
}

// By the recurrence.
inline Values reference(const SsdCase& s, const Values& in) {
  const int64_t states = s.state_dim, width = s.head_dim;
  Vector out(in.at("x").size());
  for (int64_t head = 0; head < s.heads; ++head) {
    const int64_t group = head * s.groups / s.heads;
    int64_t begin = 0;
    for (int64_t size : s.documents) {
      Vector state(static_cast<size_t>(states * width));
      for (int64_t t = begin; t < begin + size; ++t) {
        const int64_t of_group = (t * s.groups + group) * states, of_head = (t * s.heads + head) * width;
        const double kept = std::exp(in.at("g")[t * s.heads + head]), step = in.at("step")[t * s.heads + head];
        for (int64_t j = 0; j < width; ++j) {
          const double x = in.at("x")[of_head + j];
          out[of_head + j] = in.at("skip")[head] * x;
          for (int64_t i = 0; i < states; ++i) {
            double& place = state[i * width + j];
            place = kept * place + step * in.at("b")[of_group + i] * x;
            out[of_head + j] += place * in.at("c")[of_group + i];
          }
        }
      }
      begin += size;
    }
  }
  return {{"out", out}};
}

}  // namespace megatrain::testing
