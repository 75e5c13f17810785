// CUDA's attention with a KV cache, compared with the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/gpu/cuda_fixture.h"
#include "tests/ops/cached_attention.h"
#include "tests/ops/cpu_fixture.h"

namespace megatrain::testing {
namespace {

TEST(CudaCachedAttention, EveryCaseAgreesWithTheCpu) {
  CudaFixture cuda;
  CpuFixture cpu({});
  for (const CachedAttentionCase& c : kCachedAttentionCases) {
    SCOPED_TRACE(name_of(c));
    const OpRun got = run(cuda.harness, c, 7), wanted = run(cpu.harness, c, 7);
    EXPECT_EQ(got.out.at("k"), wanted.out.at("k"));
    EXPECT_EQ(got.out.at("v"), wanted.out.at("v"));
    const Vector &a = got.out.at("out"), &b = wanted.out.at("out");
    ASSERT_EQ(a.size(), b.size());
    double scale = 0;
    for (const double value : b) scale = std::max(scale, std::fabs(value));
    const double allowed =
        c.dtype == DType::f32 ? 1e-5 * scale : 2 * std::exp2(std::floor(std::log2(scale)) - 7);  // two units of bf16
    for (size_t i = 0; i < a.size(); ++i) ASSERT_LE(std::fabs(a[i] - b[i]), allowed) << "element " << i;
  }
}

TEST(CudaCachedAttention, EveryCaseGivesTheSameBitsAgain) {
  CudaFixture cuda;
  for (const CachedAttentionCase& c : kCachedAttentionCases)
    EXPECT_EQ(run(cuda.harness, c, 9).out, run(cuda.harness, c, 9).out) << name_of(c);
}

// As for a prompt fed token by token, in pieces, or whole.
TEST(CudaCachedAttention, ATokensBitsDoNotDependOnWhatElseIsNew) {
  CudaFixture cuda;
  const CachedAttentionCase whole{DType::bf16, {0}, {150}, 8, 2, 128}, last{DType::bf16, {149}, {1}, 8, 2, 128};
  const Vector of_all = run(cuda.harness, whole, 3).out.at("out"), of_one = run(cuda.harness, last, 3).out.at("out");
  EXPECT_EQ(Vector(of_all.end() - static_cast<std::ptrdiff_t>(of_one.size()), of_all.end()), of_one);
}

}  // namespace
}  // namespace megatrain::testing
