// Mamba 2's recurrence on the CPU: chunks against the recurrence, packing, generation.
#include <gtest/gtest.h>

#include "megatrain/ops/cpu/ssd_chunk.h"
#include "tests/ops/cpu_fixture.h"
#include "tests/ops/plain_math.h"
#include "tests/ops/ssd_check.h"

namespace megatrain::testing {
namespace {

// One head of one document.
template <class T>
struct SsdHead {
  SsdHead(uint64_t seed, int64_t tokens, int64_t states, int64_t width)
      : tokens(tokens),
        states(states),
        width(width),
        x(numbers<T>(seed, tokens * width, 1)),
        b(numbers<T>(seed + 1, tokens * states, 1 / std::sqrt(static_cast<double>(states)))),
        c(numbers<T>(seed + 2, tokens * states, 1 / std::sqrt(static_cast<double>(states)))),
        step(numbers<T>(seed + 3, tokens, 0.5)),
        g(numbers<T>(seed + 4, tokens, 0.4)),
        grad_out(numbers<T>(seed + 5, tokens * width, 1)) {
    for (int64_t t = 0; t < tokens; ++t) {
      step[t] = std::abs(step[t]);
      g[t] = -std::abs(g[t]);
    }
  }

  cpu::SsdTokens<T> rows(int64_t first, int64_t count) const {
    return {count,
            x.data() + first * width,
            b.data() + first * states,
            c.data() + first * states,
            step.data() + first,
            g.data() + first,
            skip[0]};
  }

  std::vector<T> by_steps() const {
    std::vector<T> out(x.size()), state(static_cast<size_t>(states * width));
    for (int64_t t = 0; t < tokens; ++t) cpu::ssd_step(rows(t, 1), states, width, state.data(), out.data() + t * width);
    return out;
  }

  // The states before each chunk, and the outputs.
  std::vector<std::vector<T>> by_chunks(std::vector<T>& out) const {
    cpu::SsdChunk<PlainMath<T>> chunk({}, states, width);
    std::vector<std::vector<T>> list(1, std::vector<T>(static_cast<size_t>(states * width)));
    out.assign(x.size(), 0);
    for (int64_t first = 0; first < tokens; first += kSsdChunk) {
      chunk.solve(rows(first, std::min(kSsdChunk, tokens - first)), list.back().data());
      chunk.write_out(out.data() + first * width);
      std::vector<T> next(list.back().size());
      chunk.write_state(next.data());
      list.push_back(next);
    }
    return list;
  }

  int64_t tokens, states, width;
  std::vector<T> x, b, c, step, g, grad_out;
  std::vector<T> skip = {static_cast<T>(0.75)};
};

template <class T>
void expect_chunks_equal_steps(double tolerance) {
  uint64_t seed = 0;
  for (const int64_t tokens : {1, 2, 3, 63, 64, 65, 127, 200}) {
    for (const auto& [states, width] : {std::pair<int64_t, int64_t>{16, 16}, {128, 32}, {5, 128}}) {
      const SsdHead<T> head(seed += 10, tokens, states, width);
      std::vector<T> out;
      head.by_chunks(out);
      EXPECT_LE(worst_difference(out, head.by_steps()), tolerance) << tokens << " tokens, " << states << "x" << width;
    }
  }
}

TEST(SsdChunk, EqualsTheRecurrenceInDouble) { expect_chunks_equal_steps<double>(1e-12); }
TEST(SsdChunk, EqualsTheRecurrenceInFloat) { expect_chunks_equal_steps<float>(1e-5); }

// Decays whose product underflows leave no trace, and none that is not a number.
TEST(SsdChunk, ForgetsWhatStrongDecaysErase) {
  SsdHead<double> head(3, 150, 16, 16);
  for (size_t t = 0; t < head.g.size(); ++t) head.g[t] = t % 7 == 3 ? -400 : -0.01;
  std::vector<double> out;
  head.by_chunks(out);
  EXPECT_LE(worst_difference(out, head.by_steps()), 1e-11);
}

TEST(SsdChunk, BackwardIsTheSlopeOfTheRecurrence) {
  SsdHead<double> head(40, 150, 16, 32);
  std::vector<double> out;
  const auto states = head.by_chunks(out);
  cpu::SsdChunk<PlainMath<double>> chunk({}, head.states, head.width);
  std::vector<double> x(head.x.size()), b(head.b.size()), c(head.c.size()), step(head.step.size()), g(head.g.size()),
      skip(1);
  std::vector<double> grad_state(static_cast<size_t>(head.states * head.width));
  for (int64_t index = 2; index >= 0; --index) {
    const int64_t first = index * kSsdChunk;
    chunk.solve(head.rows(first, std::min(kSsdChunk, head.tokens - first)), states[static_cast<size_t>(index)].data());
    chunk.backward(head.grad_out.data() + first * head.width, grad_state.data(),
                   {x.data() + first * head.width, b.data() + first * head.states, c.data() + first * head.states,
                    step.data() + first, g.data() + first, skip.data()});
  }
  const auto loss = [&] {
    const std::vector<double> y = head.by_steps();
    return std::inner_product(y.begin(), y.end(), head.grad_out.begin(), 0.0);
  };
  const auto check = [&](const char* name, std::vector<double>& values, const std::vector<double>& grad) {
    for (size_t i = std::min<size_t>(3, values.size() - 1); i < values.size(); i += values.size() / 20 + 1) {
      const double at = values[i], by = 1e-5;
      values[i] = at + by;
      const double above = loss();
      values[i] = at - by;
      const double slope = (above - loss()) / (2 * by);
      values[i] = at;
      EXPECT_NEAR(grad[i], slope, 1e-7 * std::max(1.0, std::abs(slope))) << name << "[" << i << "]";
    }
  };
  check("x", head.x, x);
  check("b", head.b, b);
  check("c", head.c, c);
  check("step", head.step, step);
  check("g", head.g, g);
  check("skip", head.skip, skip);
}

// Backward recomputes states from kept ones; a document that ends where these begin is not special.
TEST(Ssd, DocumentsLongerThanASegmentHaveTheirGradients) {
  CpuFixture cpu({.threads = 2});
  SsdCase c{DType::f32, {64 * 18}, 2, 1, 16, 16, 0.02f};
  const OpRun whole = run(cpu.harness, c, 9);
  Values given = whole.in;
  for (int64_t head = 0; head < 2; ++head) given["g"][static_cast<size_t>((64 * 16 + 7) * 2 + head)] = -200;
  const OpRun cut = run(cpu.harness, c, 9, given);  // a decay of exp(-200) ends a document
  c.documents = {64 * 16 + 7, 64 * 2 - 7};
  const OpRun apart = run(cpu.harness, c, 9, given);
  for (const auto& [name, values] : cut.out) EXPECT_LE(largest_difference(values, apart.out.at(name)), 2e-4) << name;
}

TEST(Ssd, APackedDocumentHasTheBitsThatItHasAlone) {
  CpuFixture cpu({.threads = 2});
  check_packed_ssd(cpu.harness);
}

TEST(Ssd, GenerationGivesWhatTrainingGivesHoweverPromptsAreCut) {
  CpuFixture cpu({.threads = 3});
  check_cached_ssd(cpu.harness, 1e-5);
}

}  // namespace
}  // namespace megatrain::testing
