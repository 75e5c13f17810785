// The ops of a gated delta net in float64, written from their definitions.
#pragma once

#include <cmath>

#include "tests/ops/expert_reference.h"
#include "tests/ops/run_delta_cases.h"

namespace megatrain::testing {

inline Values reference(const ShortConvCase& c, const Values& in) {
  const Vector &x = in.at("x"), &weight = in.at("weight");
  Vector out(x.size());
  int64_t begin = 0;
  for (int64_t size : c.documents) {
    for (int64_t t = begin; t < begin + size; ++t) {
      for (int64_t channel = 0; channel < c.channels; ++channel) {
        double sum = c.bias ? in.at("bias")[channel] : 0;
        for (int64_t back = 0; back < c.taps && t - back >= begin; ++back)
          sum += weight[channel * c.taps + c.taps - 1 - back] * x[(t - back) * c.channels + channel];
        out[t * c.channels + channel] = c.plain ? sum : sum * sigmoid(sum);
      }
    }
    begin += size;
  }
  return {{"out", out}};
}

inline Values reference(const DeltaGatesCase& c, const Values& in) {
  Vector out(in.at("grad_out").size());
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t i = t * c.heads + h;
      const double x = in.at("a")[i] + in.at("dt_bias")[h];
      out[i] = -std::exp(in.at("a_log")[h]) * (x > 30 ? x : std::log1p(std::exp(x)));
      out[c.tokens * c.heads + i] = sigmoid(in.at("b")[i]);
    }
  }
  return {{"out", out}};
}

// x / sqrt(sum x^2 + 1e-6) * scale
inline Vector unit_vector(const Vector& x, int64_t begin, int64_t size, double scale) {
  Vector unit(x.begin() + begin, x.begin() + begin + size);
  double squares = 1e-6;
  for (double value : unit) squares += value * value;
  for (double& value : unit) value *= scale / std::sqrt(squares);
  return unit;
}

// One head of some documents that follow each other, by the recurrence.
inline Values reference(const DeltaRuleCase& c, const Values& in) {
  const int64_t dk = c.key_dim, dv = c.value_dim;
  Vector out(in.at("v").size());
  for (int64_t head = 0; head < c.value_heads; ++head) {
    const int64_t key_head = head * c.key_heads / c.value_heads;
    int64_t begin = 0;
    for (int64_t size : c.documents) {
      Vector state(static_cast<size_t>(dk * dv));
      for (int64_t t = begin; t < begin + size; ++t) {
        const int64_t key = (t * c.key_heads + key_head) * dk, value = (t * c.value_heads + head) * dv;
        const Vector q = unit_vector(in.at("q"), key, dk, 1 / std::sqrt(static_cast<double>(dk))),
                     k = unit_vector(in.at("k"), key, dk, 1);
        const double kept = std::exp(in.at("g")[t * c.value_heads + head]);
        Vector written(in.at("v").begin() + value, in.at("v").begin() + value + dv);
        for (int64_t i = 0; i < dk; ++i) {
          for (int64_t j = 0; j < dv; ++j) written[j] -= (state[i * dv + j] *= kept) * k[i];
        }
        for (double& d : written) d *= in.at("beta")[t * c.value_heads + head];
        for (int64_t i = 0; i < dk; ++i) {
          for (int64_t j = 0; j < dv; ++j) out[value + j] += (state[i * dv + j] += k[i] * written[j]) * q[i];
        }
      }
      begin += size;
    }
  }
  return {{"out", out}};
}

inline Values reference(const GatedNormCase& c, const Values& in) {
  const Vector &x = in.at("x"), &z = in.at("z"), &weight = in.at("weight");
  Vector normed = x;
  for (size_t i = 0; c.gate_first && i < x.size(); ++i) normed[i] *= z[i] * sigmoid(z[i]);
  Vector out(x.size());
  for (int64_t first = 0; first < c.rows * c.heads * c.size; first += c.size) {
    double squares = 0;
    for (int64_t i = first; i < first + c.size; ++i) squares += normed[i] * normed[i];
    const double inv_rms = 1 / std::sqrt(squares / static_cast<double>(c.size) + static_cast<double>(kGatedNormEps));
    for (int64_t i = first; i < first + c.size; ++i) {
      out[i] = normed[i] * inv_rms * weight[static_cast<size_t>(i) % weight.size()];
      if (!c.gate_first) out[i] *= z[i] * sigmoid(z[i]);
    }
  }
  return {{"out", out}};
}

}  // namespace megatrain::testing
