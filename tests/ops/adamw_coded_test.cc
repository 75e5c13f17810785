// Moments and masters in fewer bytes: what codes mean, that every instruction set gives the same codes, and that
// stochastic rounding has the right mean.
#include "tests/ops/adamw_coded_check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/ops/cpu_fixture.h"

namespace megatrain::testing {
namespace {

TEST(MomentCodes, LevelsAscendFromZeroToOneAndBoundsLieHalfway) {
  for (const MomentCode kind : {kFirstMomentCode, kSecondMomentCode}) {
    const uint32_t last = (1u << kind.bits) - 1;
    EXPECT_EQ(moment_level(kind, 0), 0.0f);
    EXPECT_EQ(moment_level(kind, last), 1.0f);
    for (uint32_t code = 0; code < last; ++code) {
      const double low = moment_level(kind, code), high = moment_level(kind, code + 1);
      EXPECT_LT(low, high);
      if (code > 0 || !kind.above_zero) {
        EXPECT_EQ(moment_bound(kind, code), (low + high) / 2) << "exact in fp32";
      }
    }
  }
  EXPECT_EQ(moment_level(kFirstMomentCode, 1), std::ldexp(1.0f, -18));
  EXPECT_EQ(moment_level(kSecondMomentCode, 1), std::ldexp(1.0f, -28));
  EXPECT_EQ(moment_bound(kSecondMomentCode, 0), 0.0f) << "a second moment above 0 never becomes 0";
}

TEST(MomentCodes, AnyValueIsWithinHalfALevelOfItsCode) {
  for (const MomentCode kind : {kFirstMomentCode, kSecondMomentCode}) {
    for (int i = 1; i <= 20000; ++i) {
      const float scale = 0.37f, x = scale * static_cast<float>(i) / 20000;
      const uint32_t code = code_by_counting(kind, x, scale);
      const float found = scale * moment_level(kind, code);
      const float gap = scale * (moment_level(kind, std::min(code + 1, (1u << kind.bits) - 1)) -
                                 moment_level(kind, code > 0 ? code - 1 : 0));
      EXPECT_LE(std::fabs(found - x), gap / 2 * 1.0001f) << x;
    }
  }
}

// Every bound and its neighbouring floats, where an approximate quotient could be off. With beta1 = 0 a first moment
// becomes its gradient.
TEST(MomentCodes, EveryInstructionSetFindsTheCodesThatCountingFinds) {
  for (const float scale : {1.0f, 0.3f, 1.7e-5f, 0x1.0p-80f, 3.3e15f}) {
    std::vector<float> values;
    for (uint32_t code = 0; code < 127; ++code) {
      const float bound = scale * moment_bound(kFirstMomentCode, code);
      for (const float x : {bound, std::nextafter(bound, 0.0f), std::nextafter(bound, scale)}) values.push_back(x);
      values.push_back(-scale * moment_level(kFirstMomentCode, code));
    }
    for (size_t at = 0; at < values.size(); at += kStateBlock)
      values.insert(values.begin() + static_cast<int64_t>(at), scale);
    const size_t blocks = (values.size() + kStateBlock - 1) / kStateBlock;
    for (const Simd simd : {Simd::scalar, Simd::neon, Simd::avx2, Simd::avx512}) {
      if (!simd_runs_here(simd)) continue;
      std::vector<uint8_t> m(values.size()), v(values.size());
      std::vector<float> w(values.size()), m_scales(blocks), v_scales(blocks);
      EXPECT_TRUE(adamw_cpu(
          {.scalars = {.clip = 1, .beta2 = 1, .one_minus_beta1 = 1, .inv_sqrt_bias2 = 1, .eps = 1},
           .count = std::ssize(values),
           .grad_f32 = values.data(),
           .m = m.data(),
           .v = v.data(),
           .master = w.data(),
           .coded = {.moments = MomentFormat::int8, .m_scales = m_scales.data(), .v_scales = v_scales.data()}},
          simd));
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(m_scales[i / kStateBlock], scale);
        const uint8_t code = code_by_counting(kFirstMomentCode, std::fabs(values[i]), scale);
        ASSERT_EQ(m[i], code > 0 && values[i] < 0 ? code | kNegativeCode : code)
            << simd_name(simd) << ", " << values[i] << " of " << scale;
      }
    }
  }
}

TEST(AdamWCoded, TheOpEqualsTheReferenceInEveryFormat) {
  CpuFixture cpu({.threads = 3});
  check_adamw_coded(cpu.harness);
}

TEST(AdamWCoded, EveryInstructionSetGivesTheBitsOfTheScalarOne) {
  CpuFixture cpu({.threads = 3});
  Harness& h = cpu.harness;
  h.start(54);
  for (const CodedCase& c : coded_cases()) {
    if (c.by_rows) continue;
    const CodedPlanes start = zero_planes(h, c);
    const Vector values = h.random(c.count(), DType::f32, 0.01);
    std::vector<float> grad(values.begin(), values.end());
    const auto after = [&](Simd simd) {
      CodedPlanes p = start;
      for (int64_t step = 1; step <= 3; ++step) {
        AdamWScalars scalars = adamw_hash_scalars(static_cast<int>(step));
        scalars.random = static_cast<uint64_t>(step);
        EXPECT_TRUE(adamw_cpu({.scalars = scalars,
                               .count = c.count(),
                               .grad_f32 = grad.data(),
                               .m = p.m.data(),
                               .v = p.v.data(),
                               .weight = p.weight.empty() ? nullptr : p.weight.data(),
                               .low = p.low.empty() ? nullptr : p.low.data(),
                               .master = p.master.empty() ? nullptr : p.master.data(),
                               .coded = c.coded(p)},
                              simd));
      }
      return p;
    };
    const CodedPlanes scalar = after(Simd::scalar);
    for (const Simd simd : {Simd::neon, Simd::avx2, Simd::avx512}) {
      if (simd_runs_here(simd)) {
        EXPECT_TRUE(after(simd) == scalar) << simd_name(simd) << ", " << moments_name(c.moments);
      }
    }
  }
}

TEST(RoundingByChance, HasTheMeanOfTheValueAndIsUniform) {
  constexpr uint32_t kDraws = 1 << 20;
  for (const float x : {1.0f + 0x1.0p-9f, -0.3f, 1e-20f, 123.456f}) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    double sum = 0;
    for (uint32_t i = 0; i < kDraws; ++i)
      sum += to_float(bf16{static_cast<uint16_t>(round_by_chance(bits, element_bits(99, i) & 0xFFFF))});
    const double gap = std::fabs(to_float(bf16{static_cast<uint16_t>((bits >> 16) + 1)}) -
                                 to_float(bf16{static_cast<uint16_t>(bits >> 16)}));
    EXPECT_NEAR(sum / kDraws, x, 5 * gap / std::sqrt(kDraws)) << x;
  }
  for (const uint64_t key : {0ull, 1ull, 0xFFFFFFFF00000000ull, 12345678901234ull}) {
    for (const int shift : {0, 16}) {
      std::vector<int> count(64);
      for (uint32_t i = 0; i < kDraws; ++i) ++count[(element_bits(key, i) >> shift & 0xFFFF) >> 10];
      for (const int n : count) EXPECT_NEAR(n, kDraws / 64, 6 * std::sqrt(kDraws / 64.0));
    }
  }
}

TEST(RoundingByChance, OfOneElementOverStepsIsUniformToo) {
  constexpr uint64_t kSteps = 1 << 16;
  std::vector<int> count(16);
  for (uint64_t step = 0; step < kSteps; ++step)
    ++count[(element_bits(mix_key(mix_key(3, step), 77), 1234) & 0xFFFF) >> 12];
  for (const int n : count) EXPECT_NEAR(n, kSteps / 16, 6 * std::sqrt(kSteps / 16.0));
}

// Rounded to nearest, a bf16 second moment that shrinks by 0.1% per step would never change.
TEST(AdamWCoded, SecondMomentsShrinkAtTheirRateWithoutAGradient) {
  for (const MomentFormat moments : {MomentFormat::bf16, MomentFormat::int8}) {
    constexpr size_t kCount = 4096;
    std::vector<float> g(kCount), w(kCount), scales(2 * kCount / kStateBlock);
    for (size_t i = 0; i < kCount; ++i) g[i] = 0.5f + static_cast<float>(i) / kCount;
    std::vector<uint8_t> m(2 * kCount), v(2 * kCount);
    AdamW args{
        .scalars = {.clip = 1,
                    .beta2 = 0.999f,
                    .one_minus_beta1 = 0.1f,
                    .one_minus_beta2 = 0.001f,
                    .inv_sqrt_bias2 = 1,
                    .eps = 1e-8f},
        .count = kCount,
        .grad_f32 = g.data(),
        .m = m.data(),
        .v = v.data(),
        .master = w.data(),
        .coded = {.moments = moments, .m_scales = scales.data(), .v_scales = scales.data() + kCount / kStateBlock}};
    const auto mean = [&] {
      double sum = 0;
      for (size_t i = 0; i < kCount; ++i) {
        sum += moments == MomentFormat::bf16
                   ? to_float(bf16{reinterpret_cast<uint16_t*>(v.data())[i]})
                   : decode_second_moment(v[i], args.coded.v_scales[i / kStateBlock], kSecondMomentTable.level);
      }
      return sum / kCount;
    };
    for (args.scalars.random = 1; args.scalars.random <= 10; ++args.scalars.random) adamw_cpu(args, best_simd());
    const double before = mean();
    args.grad_f32 = nullptr;
    for (int step = 0; step < 700; ++step, ++args.scalars.random) adamw_cpu(args, best_simd());
    EXPECT_NEAR(mean() / before, std::pow(0.999, 700), 0.02) << moments_name(moments);
  }
}

}  // namespace
}  // namespace megatrain::testing
