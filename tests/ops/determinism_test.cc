// Bits must not depend on the number of threads, on how tokens are packed or split, or on neighbouring documents.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ops/adamw_update_check.h"
#include "tests/ops/cpu_fixture.h"
#include "tests/ops/run_cases.h"

namespace megatrain::testing {
namespace {

// Tokens [begin, begin + count) of a (T, cols) tensor.
Vector rows_of(const Vector& values, int64_t tokens, int64_t begin, int64_t count) {
  const int64_t cols = static_cast<int64_t>(values.size()) / tokens;
  return Vector(values.begin() + begin * cols, values.begin() + (begin + count) * cols);
}

TEST(CpuOpsBits, DoNotDependOnTheNumberOfThreads) {
  CpuFixture one({.threads = 1}), three({.threads = 3});
  for (const NamedCase& c : all_cases()) {
    const OpRun a = c.run(one.harness, 7), b = c.run(three.harness, 7);
    EXPECT_EQ(a.out, b.out) << c.name;
  }
}

TEST(CpuOpsBits, DoNotDependOnTheInstructionSet) {
  CpuFixture scalar({.threads = 2, .simd = Simd::scalar});
  int others = 0;
  for (const Simd simd : {Simd::neon, Simd::avx2, Simd::avx512}) {
    if (!simd_runs_here(simd)) continue;
    ++others;
    CpuFixture vector({.threads = 2, .simd = simd});
    for (const NamedCase& c : all_cases()) {
      EXPECT_EQ(c.run(scalar.harness, 7).out, c.run(vector.harness, 7).out) << c.name << " with " << simd_name(simd);
    }
  }
  EXPECT_GT(others, 0) << "this machine has no vectors to compare";
}

TEST(CpuOpsBits, RepeatWhenACaseRunsAgain) {
  CpuFixture cpu({.threads = 3});
  for (const NamedCase& c : all_cases()) EXPECT_EQ(c.run(cpu.harness, 9).out, c.run(cpu.harness, 9).out) << c.name;
}

TEST(CpuOpsBits, PackedDocumentsEqualSeparateDocuments) {
  CpuFixture cpu({.threads = 2});
  const auto of_head = [](const std::string& name) { return name == "sinks" || name == "grad_sinks"; };
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t window : {0, 40}) {
      for (bool sinks : {false, true}) {
        const AttentionCase packed{dtype, {5, 70, 1, 200, 64}, 4, 2, 20, window, 0, sinks};
        const int64_t tokens = tokens_of(packed);
        const OpRun together = run(cpu.harness, packed, 21);
        int64_t begin = 0;
        for (int32_t size : packed.documents) {
          AttentionCase alone = packed;
          alone.documents = {size};
          Values given;
          for (const auto& [name, values] : together.in)
            given[name] = of_head(name) ? values : rows_of(values, tokens, begin, size);
          const OpRun apart = run(cpu.harness, alone, 21, given);
          for (const auto& [name, values] : together.out) {
            if (of_head(name)) continue;  // a sum over all documents
            EXPECT_EQ(rows_of(values, tokens, begin, size), apart.out.at(name)) << name << " of document " << begin;
          }
          begin += size;
        }
      }
    }
  }
}

TEST(CpuOpsBits, ASinkFarBelowEveryScoreChangesNoBit) {
  CpuFixture cpu({.threads = 2});
  for (DType dtype : {DType::f32, DType::bf16}) {
    AttentionCase c{dtype, {30, 200}, 4, 2, 20, 90};
    Values without = run(cpu.harness, c, 5).out;
    c.sinks = true;
    Values with = run(cpu.harness, c, 5, {{"sinks", Vector(4, stored(-1e30, dtype))}}).out;
    EXPECT_EQ(with.at("grad_sinks"), Vector(4, 0.0));
    with.erase("grad_sinks");
    EXPECT_EQ(with, without);
  }
}

TEST(CpuOpsBits, ADocumentNeverSeesAnother) {
  CpuFixture cpu({.threads = 2});
  const AttentionCase c{DType::f32, {30, 90, 25}, 4, 1, 12};
  const int64_t tokens = tokens_of(c), begin = 30, size = 90;
  const OpRun before = run(cpu.harness, c, 4);
  Values given = before.in;
  for (auto& [name, values] : given) {
    const int64_t cols = static_cast<int64_t>(values.size()) / tokens;
    for (int64_t i = begin * cols; i < (begin + size) * cols; ++i) values[i] = std::numeric_limits<double>::quiet_NaN();
  }
  const OpRun after = run(cpu.harness, c, 4, given);
  for (const auto& [name, values] : before.out) {
    EXPECT_EQ(rows_of(values, tokens, 0, begin), rows_of(after.out.at(name), tokens, 0, begin)) << name;
    EXPECT_EQ(rows_of(values, tokens, begin + size, 25), rows_of(after.out.at(name), tokens, begin + size, 25)) << name;
    EXPECT_TRUE(std::isnan(after.out.at(name)[begin * static_cast<int64_t>(values.size()) / tokens])) << name;
  }
}

TEST(CpuOpsBits, ATokenSeesNoLaterToken) {
  CpuFixture cpu({.threads = 2});
  const AttentionCase c{DType::f32, {150}, 2, 1, 8};
  const OpRun before = run(cpu.harness, c, 4);
  Values given = before.in;
  for (auto& [name, values] : given) values.back() += 1;
  const OpRun after = run(cpu.harness, c, 4, given);
  EXPECT_EQ(rows_of(before.out.at("out"), 150, 0, 149), rows_of(after.out.at("out"), 150, 0, 149));
  EXPECT_NE(rows_of(before.out.at("out"), 150, 149, 1), rows_of(after.out.at("out"), 150, 149, 1));
}

TEST(CpuOpsBits, EmbeddingGradientIsTheSameWhenTokensAreSplitOverCalls) {
  CpuFixture cpu({.threads = 3});
  Harness& h = cpu.harness;
  const int64_t rows = 11, tokens = 150, hidden = 700;
  for (DType dtype : {DType::f32, DType::bf16}) {
    h.start(31);
    std::vector<int32_t> index(tokens);
    for (int64_t t = 0; t < tokens; ++t) index[t] = static_cast<int32_t>(h.random_index(t, rows));
    const Tensor grad_out = h.filled(dtype, tokens, hidden, h.random(tokens * hidden, dtype));
    const Vector before = h.random(rows * hidden, DType::f32);
    const auto accumulate = [&](const std::vector<int64_t>& cuts) {
      const Tensor grad = h.filled(DType::f32, rows, hidden, before);
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        const std::vector<int32_t> part(index.begin() + cuts[i], index.begin() + cuts[i + 1]);
        const Segments s = segments_of(part, static_cast<int32_t>(cuts[i]));
        const Buffer order = h.upload(s.order), begin = h.upload(s.begin), row = h.upload(s.row);
        h.ops.embedding_backward(h.stream, {.grad_out = grad_out.view,
                                            .order = pointer<int32_t>(order),
                                            .begin = pointer<int32_t>(begin),
                                            .row = pointer<int32_t>(row),
                                            .segments = static_cast<int64_t>(s.row.size()),
                                            .grad = grad.view});
        h.stream.synchronize();
      }
      return h.read(grad);
    };
    const Vector whole = accumulate({0, tokens});
    EXPECT_EQ(whole, accumulate({0, 1, 64, 65, 149, tokens}));
    EXPECT_NE(whole, before);
  }
}

TEST(CpuOpsBits, ARowOfAProductDoesNotDependOnHowManyRowsThereAre) {
  for (const Simd simd : {best_simd(), Simd::scalar}) {
    CpuFixture cpu({.threads = 2, .simd = simd});
    Harness& h = cpu.harness;
    const int64_t rows = 200, in = 300, out = 270;
    for (DType dtype : {DType::f32, DType::bf16}) {
      h.start(41);
      const Tensor x = h.filled(dtype, rows, in, h.random(rows * in, dtype));
      const Tensor weight = h.filled(dtype, out, in, h.random(out * in, dtype));
      const Tensor grad = h.filled(dtype, rows, out, h.random(rows * out, dtype));
      const auto matmuls = [&](int64_t count) {
        const Tensor y = h.poisoned(dtype, count, out), grad_x = h.poisoned(dtype, count, in);
        h.ops.linear_forward(
            h.stream,
            {.x = x.view.slice_rows(0, count), .weight = weight.view, .bias = {}, .residual = {}, .out = y.view});
        h.ops.linear_backward_input(
            h.stream, {.grad_out = grad.view.slice_rows(0, count), .weight = weight.view, .grad_x = grad_x.view});
        h.stream.synchronize();
        return std::pair{h.read(y), h.read(grad_x)};
      };
      const auto all = matmuls(rows);
      for (int64_t count : {1, 7, 64, 100, 129}) {
        const auto some = matmuls(count);
        EXPECT_EQ(rows_of(all.first, rows, 0, count), some.first) << count;
        EXPECT_EQ(rows_of(all.second, rows, 0, count), some.second) << count;
      }
    }
  }
}

TEST(CpuOpsBits, GradientsThatAreNotWantedChangeNoOtherBit) {
  CpuFixture cpu({.threads = 2});
  Harness& h = cpu.harness;
  const int64_t rows = 90, in = 70, out = 150;
  for (DType dtype : {DType::f32, DType::bf16}) {
    h.start(43);
    const Tensor x = h.filled(dtype, rows, in, h.random(rows * in, dtype));
    const Tensor grad = h.filled(dtype, rows, out, h.random(rows * out, dtype));
    // rows [begin, begin + count) of the weight's gradient and of the bias's
    const auto gradients = [&](int64_t begin, int64_t count, bool weight) {
      const Tensor of_weight = h.poisoned(DType::f32, count, in), of_bias = h.poisoned(DType::f32, 1, count);
      h.ops.linear_backward_weight(h.stream, {.grad_out = grad.view.slice_cols(begin, count),
                                              .x = x.view,
                                              .grad_weight = weight ? of_weight.view : View{},
                                              .grad_bias = of_bias.view,
                                              .accumulate = false});
      h.stream.synchronize();
      return std::pair{weight ? h.read(of_weight) : Vector{}, h.read(of_bias)};
    };
    const auto all = gradients(0, out, true);
    EXPECT_EQ(gradients(0, out, false).second, all.second);
    for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 64}, {64, 31}, {95, 55}, {17, 1}}) {
      const auto some = gradients(begin, count, true);
      EXPECT_EQ(some.first, rows_of(all.first, out, begin, count)) << begin;
      EXPECT_EQ(some.second, rows_of(all.second, out, begin, count)) << begin;
    }

    const Tensor norm = h.filled(dtype, 1, in, h.random(in, dtype));
    const Tensor inv_rms = h.filled(DType::f32, 1, rows, h.random(rows, DType::f32));
    const Tensor grad_normed = h.filled(dtype, rows, in, h.random(rows * in, dtype));
    const auto input_gradient = [&](bool weight) {
      const Tensor of_weight = h.poisoned(DType::f32, 1, in), of_x = h.poisoned(dtype, rows, in);
      h.ops.rmsnorm_backward(h.stream, {.x = x.view,
                                        .weight = norm.view,
                                        .inv_rms = inv_rms.view.as<float>(),
                                        .grad_out = grad_normed.view,
                                        .residual = {},
                                        .grad_x = of_x.view,
                                        .grad_weight = weight ? of_weight.view : View{},
                                        .accumulate = false});
      h.stream.synchronize();
      return h.read(of_x);
    };
    EXPECT_EQ(input_gradient(false), input_gradient(true));
  }
}

TEST(CpuOpsBits, AdamWOnTheDeviceEqualsThePassAloneAndClearsTheFlagOnlyWhenNotFinite) {
  CpuFixture cpu({.threads = 3});
  check_adamw_update(cpu.harness);
}

TEST(CpuOpsBits, AdamWMarksAMomentThatIsNotFinite) {
  CpuFixture cpu({.threads = 3});
  check_adamw_marks(cpu.harness);
}

TEST(CpuOpsBits, ClipFactorIsTheHostsAndNotANumberWhenTheNormIsNotFinite) {
  CpuFixture cpu({.threads = 1});
  check_clip_factor(cpu.harness);
}

}  // namespace
}  // namespace megatrain::testing
