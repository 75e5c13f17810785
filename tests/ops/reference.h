// Each op's forward in float64, written from its definition: the reference for every backend.
#pragma once

#include <algorithm>
#include <cmath>

#include "tests/ops/delta_reference.h"
#include "tests/ops/expert_reference.h"
#include "tests/ops/run_cases.h"
#include "tests/ops/ssd_reference.h"

namespace megatrain::testing {

inline Values reference(const EmbeddingCase& c, const Values& in) {
  const Vector &index = in.at("index"), &table = in.at("table");
  Vector out(static_cast<size_t>(c.tokens * c.hidden));
  for (int64_t t = 0; t < c.tokens; ++t) {
    const int64_t row = static_cast<int64_t>(index[t]);
    for (int64_t i = 0; i < c.hidden; ++i)
      out[t * c.hidden + i] = row < 0 ? in.at("held")[t * c.hidden + i] : table[row * c.hidden + i] * c.scale;
  }
  return {{"out", out}};
}

inline Values reference(const RmsNormCase& c, const Values& in) {
  const Vector &x = in.at("x"), &weight = in.at("weight");
  Vector out(x.size()), inv_rms(static_cast<size_t>(c.rows * c.groups));
  for (int64_t v = 0; v < c.rows * c.groups; ++v) {
    double squares = 0, mean = 0;
    for (int64_t i = 0; c.centred && i < c.size; ++i) mean += x[v * c.size + i] / static_cast<double>(c.size);
    for (int64_t i = 0; i < c.size; ++i) squares += (x[v * c.size + i] - mean) * (x[v * c.size + i] - mean);
    inv_rms[v] = 1.0 / std::sqrt(squares / static_cast<double>(c.size) + static_cast<double>(kRmsNormEps));
    for (int64_t i = 0; i < c.size; ++i) {
      out[v * c.size + i] = (x[v * c.size + i] - mean) * inv_rms[v] * (c.weight_offset + weight[i]);
      if (c.adds) out[v * c.size + i] += in.at("residual")[v * c.size + i];
    }
  }
  return {{"out", out}, {"inv_rms", inv_rms}};
}

inline Values reference(const RopeCase& c, const Values& in) {
  const Vector &x = in.at("x"), &positions = in.at("positions"), &cosines = in.at("cos"), &sines = in.at("sin");
  Vector out = x;
  const int64_t half = (c.rotary_dim > 0 ? c.rotary_dim : c.head_dim) / 2;
  for (int64_t t = 0; t < c.rows; ++t) {
    const int64_t position = static_cast<int64_t>(positions[t]);
    for (int64_t head = 0; head < c.heads; ++head) {
      const int64_t base = (t * c.heads + head) * c.head_dim;
      for (int64_t i = 0; i < half; ++i) {
        const double cos = cosines[position * half + i], sin = sines[position * half + i];
        const int64_t one = base + (c.pairs ? 2 * i : i), two = c.pairs ? one + 1 : one + half;
        out[one] = x[one] * cos - x[two] * sin;
        out[two] = x[two] * cos + x[one] * sin;
      }
    }
  }
  return {{"out", out}};
}

inline Values reference(const LinearCase& c, const Values& in) {
  const Vector &x = in.at("x"), &weight = in.at("weight");
  Vector out(static_cast<size_t>(c.rows * c.out));
  for (int64_t t = 0; t < c.rows; ++t) {
    for (int64_t n = 0; n < c.out; ++n) {
      double matmul = 0;
      for (int64_t k = 0; k < c.in; ++k) matmul += x[t * c.in + k] * weight[n * c.in + k];
      out[t * c.out + n] = static_cast<double>(c.scale) * matmul + (c.bias ? in.at("bias")[n] : 0) +
                           (c.accumulate ? in.at("residual")[t * c.out + n] : 0);
    }
  }
  return {{"out", out}};
}

inline Values reference(const DoraCase& c, const Values& in) {
  const Vector &weight = in.at("weight"), &a = in.at("a"), &b = in.at("b"), &x = in.at("x");
  Vector out(x.size()), factors(static_cast<size_t>(c.out)), inv_norms(factors.size());
  for (int64_t n = 0; n < c.out; ++n) {
    double squares = 0;
    for (int64_t k = 0; k < c.in; ++k) {
      double delta = 0;
      for (int64_t r = 0; r < c.rank; ++r) delta += b[n * c.rank + r] * a[r * c.in + k];
      const double sum = weight[n * c.in + k] + static_cast<double>(c.scale) * delta;
      squares += sum * sum;
    }
    inv_norms[n] = 1 / std::sqrt(squares);
    factors[n] = in.at("magnitude")[n] * inv_norms[n];
    for (int64_t t = 0; t < c.rows; ++t) {
      out[t * c.out + n] = (factors[n] + static_cast<double>(c.offset)) * x[t * c.out + n] +
                           (c.bias ? in.at("bias")[n] : 0) + (c.adds ? in.at("residual")[t * c.out + n] : 0);
    }
  }
  return {{"factors", factors}, {"inv_norms", inv_norms}, {"out", out}};
}

inline Values reference(const AttentionCase& c, const Values& in) {
  const Vector &q = in.at("q"), &k = in.at("k"), &v = in.at("v");
  const double scale = shape_of(c).scale;
  const int64_t dim = c.head_dim;
  Vector out(q.size());
  int64_t begin = 0;
  for (int64_t size : c.documents) {
    for (int64_t head = 0; head < c.heads; ++head) {
      const int64_t kv = head * c.kv_heads / c.heads;
      for (int64_t t = begin; t < begin + size; ++t) {
        const int64_t first = c.window > 0 ? std::max(begin, t - c.window + 1) : begin;
        Vector score(static_cast<size_t>(t + 1 - first));
        for (int64_t s = first; s <= t; ++s) {
          double dot = 0;
          for (int64_t d = 0; d < dim; ++d)
            dot += q[(t * c.heads + head) * dim + d] * k[(s * c.kv_heads + kv) * dim + d];
          score[s - first] = dot * scale;
          if (c.cap > 0) score[s - first] = c.cap * std::tanh(score[s - first] / c.cap);
        }
        double top = *std::max_element(score.begin(), score.end());
        if (c.sinks) top = std::max(top, in.at("sinks")[head]);
        double sum = c.sinks ? std::exp(in.at("sinks")[head] - top) : 0;
        for (double& x : score) sum += x = std::exp(x - top);
        for (int64_t s = first; s <= t; ++s) {
          for (int64_t d = 0; d < dim; ++d) {
            out[(t * c.heads + head) * dim + d] += score[s - first] / sum * v[(s * c.kv_heads + kv) * dim + d];
          }
        }
      }
    }
    begin += size;
  }
  return {{"out", out}};
}

inline Values reference(const GatedCase& c, const Values& in) {
  const Vector& gate_up = in.at("gate_up");
  Vector out(static_cast<size_t>(c.rows * c.size));
  for (int64_t t = 0; t < c.rows; ++t) {
    for (int64_t i = 0; i < c.size; ++i) {
      const int64_t parts = parts_of(c.activation);
      const double gate = gate_up[t * parts * c.size + i];
      const double up = has_gate(c.activation) ? gate_up[(t * 2 + 1) * c.size + i] : 1;
      const double factor = c.row_gate ? 1 / (1 + std::exp(-in.at("row_gate")[t])) : 1;
      out[t * c.size + i] = activated(c.activation, gate) * up * factor;
    }
  }
  return {{"out", out}};
}

inline Values reference(const OutputGateCase& c, const Values& in) {
  Vector out(static_cast<size_t>(c.rows * c.size));
  for (size_t i = 0; i < out.size(); ++i) {
    const double gate = in.at("gate")[i], sigmoid = 1 / (1 + std::exp(-gate));
    const double factor = c.form == GateForm::plain ? gate : c.form == GateForm::silu ? gate * sigmoid : sigmoid;
    out[i] = in.at("x")[i] * factor;
  }
  return {{"out", out}};
}

inline Values reference(const CrossEntropyCase& c, const Values& in) {
  Vector loss(static_cast<size_t>(c.rows)), correct(static_cast<size_t>(c.rows)), logits = in.at("logits");
  if (c.cap > 0) {
    for (double& logit : logits) logit = c.cap * std::tanh(logit / c.cap);
  }
  for (int64_t t = 0; t < c.rows; ++t) {
    const int64_t label = static_cast<int64_t>(in.at("labels")[t]);
    if (label == kIgnoreLabel) continue;
    const double* row = logits.data() + t * c.vocab;
    const double* best = std::max_element(row, row + c.vocab);
    double sum = 0;
    for (int64_t i = 0; i < c.vocab; ++i) sum += std::exp(row[i] - *best);
    loss[t] = std::log(sum) + *best - row[label];
    correct[t] = best - row == label;
  }
  Values out = {{"loss", loss}, {"loss_with_backward", loss}, {"correct", correct}};
  if (c.cap > 0) out["capped"] = logits;
  return out;
}

inline Values reference(const FinishGradientCase& c, const Values& in) {
  Vector out(in.at("grad")), sums(static_cast<size_t>(c.parts));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = stored(out[i], c.dtype);
    sums[i / (out.size() / sums.size())] += out[i] * out[i];
  }
  return {{"out", out}, {"sums_of_squares", sums}};
}

inline Values reference(const SumLossesCase&, const Values& in) {
  const Vector &loss = in.at("loss"), &correct = in.at("correct");
  return {{"loss_sum", {std::accumulate(loss.begin(), loss.end(), 0.0)}},
          {"correct_sum", {std::accumulate(correct.begin(), correct.end(), 0.0)}}};
}

}  // namespace megatrain::testing
