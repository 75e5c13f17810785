// The gated delta rule on the CPU: chunks against the recurrence, packing, generation.
#include <gtest/gtest.h>

#include "megatrain/ops/cpu/delta_chunk.h"
#include "tests/ops/cpu_fixture.h"
#include "tests/ops/delta_cached.h"
#include "tests/ops/plain_math.h"

namespace megatrain::testing {
namespace {

// One value head of one document.
template <class T>
struct Head {
  Head(uint64_t seed, int64_t tokens, int64_t dk, int64_t dv)
      : tokens(tokens),
        dk(dk),
        dv(dv),
        q(numbers<T>(seed, tokens * dk, 0.3)),
        k(numbers<T>(seed + 1, tokens * dk, 1)),
        v(numbers<T>(seed + 2, tokens * dv, 1)),
        g(numbers<T>(seed + 3, tokens, 0.4)),
        beta(numbers<T>(seed + 4, tokens, 1)),
        grad_out(numbers<T>(seed + 5, tokens * dv, 1)) {
    for (int64_t t = 0; t < tokens; ++t) {
      T squares = 0;
      for (int64_t i = 0; i < dk; ++i) squares += k[t * dk + i] * k[t * dk + i];
      for (int64_t i = 0; i < dk; ++i) k[t * dk + i] /= std::sqrt(squares);
      g[t] = -std::abs(g[t]);
      beta[t] = 1 / (1 + std::exp(-beta[t]));
    }
  }

  cpu::DeltaTokens<T> rows(int64_t first, int64_t count) const {
    return {count,
            q.data() + first * dk,
            k.data() + first * dk,
            v.data() + first * dv,
            g.data() + first,
            beta.data() + first};
  }

  std::vector<T> by_steps() const {
    std::vector<T> out(v.size()), state(static_cast<size_t>(dk * dv)), scratch(static_cast<size_t>(dv));
    for (int64_t t = 0; t < tokens; ++t)
      cpu::delta_step(rows(t, 1), dk, dv, state.data(), out.data() + t * dv, scratch.data());
    return out;
  }

  // The states before each chunk, and the outputs.
  std::vector<std::vector<T>> by_chunks(std::vector<T>& out) const {
    cpu::DeltaChunk<PlainMath<T>> chunk({}, dk, dv);
    std::vector<std::vector<T>> states(1, std::vector<T>(static_cast<size_t>(dk * dv)));
    out.assign(v.size(), 0);
    for (int64_t first = 0; first < tokens; first += kDeltaChunk) {
      chunk.solve(rows(first, std::min(kDeltaChunk, tokens - first)), states.back().data());
      chunk.write_out(out.data() + first * dv);
      std::vector<T> next(states.back().size());
      chunk.write_state(next.data());
      states.push_back(next);
    }
    return states;
  }

  int64_t tokens, dk, dv;
  std::vector<T> q, k, v, g, beta, grad_out;
};

template <class T>
void expect_chunks_equal_steps(double tolerance) {
  uint64_t seed = 0;
  for (const int64_t tokens : {1, 2, 3, 63, 64, 65, 127, 200}) {
    for (const auto& [dk, dv] : {std::pair<int64_t, int64_t>{16, 16}, {128, 32}, {48, 128}}) {
      const Head<T> head(seed += 10, tokens, dk, dv);
      std::vector<T> out;
      head.by_chunks(out);
      EXPECT_LE(worst_difference(out, head.by_steps()), tolerance) << tokens << " tokens, " << dk << "x" << dv;
    }
  }
}

TEST(DeltaChunk, EqualsTheRecurrenceInDouble) { expect_chunks_equal_steps<double>(1e-12); }
TEST(DeltaChunk, EqualsTheRecurrenceInFloat) { expect_chunks_equal_steps<float>(1e-5); }

// Decays whose product underflows leave no trace, and none that is not a number.
TEST(DeltaChunk, ForgetsWhatStrongDecaysErase) {
  Head<double> head(3, 150, 16, 16);
  for (size_t t = 0; t < head.g.size(); ++t) head.g[t] = t % 7 == 3 ? -400 : -0.01;
  std::vector<double> out;
  head.by_chunks(out);
  EXPECT_LE(worst_difference(out, head.by_steps()), 1e-11);
}

TEST(DeltaChunk, BackwardIsTheSlopeOfTheRecurrence) {
  Head<double> head(40, 150, 16, 32);
  std::vector<double> out;
  const auto states = head.by_chunks(out);
  cpu::DeltaChunk<PlainMath<double>> chunk({}, head.dk, head.dv);
  std::vector<double> q(head.q.size()), k(head.k.size()), v(head.v.size()), g(head.g.size()), beta(head.beta.size());
  std::vector<double> grad_state(static_cast<size_t>(head.dk * head.dv));
  for (int64_t index = 2; index >= 0; --index) {
    const int64_t first = index * kDeltaChunk;
    chunk.solve(head.rows(first, std::min(kDeltaChunk, head.tokens - first)),
                states[static_cast<size_t>(index)].data());
    chunk.backward(head.grad_out.data() + first * head.dv, grad_state.data(),
                   {q.data() + first * head.dk, k.data() + first * head.dk, v.data() + first * head.dv,
                    g.data() + first, beta.data() + first});
  }
  const auto loss = [&] {
    const std::vector<double> y = head.by_steps();
    return std::inner_product(y.begin(), y.end(), head.grad_out.begin(), 0.0);
  };
  const auto check = [&](const char* name, std::vector<double>& values, const std::vector<double>& grad) {
    for (size_t i = 3; i < values.size(); i += values.size() / 20 + 1) {
      const double at = values[i], step = 1e-5;
      values[i] = at + step;
      const double above = loss();
      values[i] = at - step;
      const double slope = (above - loss()) / (2 * step);
      values[i] = at;
      EXPECT_NEAR(grad[i], slope, 1e-7 * std::max(1.0, std::abs(slope))) << name << "[" << i << "]";
    }
  };
  check("q", head.q, q);
  check("k", head.k, k);
  check("v", head.v, v);
  check("g", head.g, g);
  check("beta", head.beta, beta);
}

// Backward keeps the states before every 16th chunk: more chunks than that give the gradients of finite differences.
TEST(DeltaRule, ALongDocumentsGradientsAreThoseOfItsParts) {
  CpuFixture cpu({.threads = 2});
  DeltaRuleCase c{DType::f32, {64 * 18}, 1, 1, 16, 16, 0.5f};
  const OpRun whole = run(cpu.harness, c, 9);
  // a token that erases the state makes what follows independent of what was before
  Values given = whole.in;
  given["g"][64 * 16 + 7] = -1000;
  const OpRun cut = run(cpu.harness, c, 9, given);
  c.documents = {64 * 16 + 7, 64 * 2 - 7};
  const OpRun apart = run(cpu.harness, c, 9, given);
  for (const auto& [name, values] : cut.out) EXPECT_LE(largest_difference(values, apart.out.at(name)), 2e-5) << name;
}

TEST(DeltaRule, APackedDocumentHasTheBitsThatItHasAlone) {
  CpuFixture cpu({.threads = 2});
  check_packed_delta_rule(cpu.harness);
}

TEST(DeltaRule, GenerationGivesWhatTrainingGivesHoweverPromptsAreCut) {
  CpuFixture cpu({.threads = 3});
  check_cached(cpu.harness, 1e-5);
}

}  // namespace
}  // namespace megatrain::testing
