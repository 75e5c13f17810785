#include "megatrain/ops/adamw.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"
#include "megatrain/base/split_master.h"
#include "tests/ops/adamw_hash.h"

namespace megatrain {
namespace {

enum class GradForm { none, bf16, f32 };
enum class MasterForm { split, plain };

constexpr GradForm kGradForms[] = {GradForm::none, GradForm::bf16, GradForm::f32};
constexpr MasterForm kMasterForms[] = {MasterForm::split, MasterForm::plain};

std::vector<Simd> simds_here() {
  std::vector<Simd> here;
  for (const Simd simd : {Simd::scalar, Simd::neon, Simd::avx2, Simd::avx512}) {
    if (simd_runs_here(simd)) here.push_back(simd);
  }
  return here;
}

// Every plane in every form; `master` and the split planes start equal.
struct Planes {
  std::vector<bf16> grad_bf16;
  std::vector<float> grad_f32, m, v, master;
  std::vector<bf16> weight;
  std::vector<uint16_t> low;

  explicit Planes(size_t n) : grad_bf16(n), grad_f32(n), m(n), v(n), master(n), weight(n), low(n) {}

  void set(size_t i, float g, float m_value, float v_value, float w) {
    grad_bf16[i] = to_bf16(g);
    grad_f32[i] = to_float(grad_bf16[i]);
    m[i] = m_value;
    v[i] = v_value;
    master[i] = w;
    weight[i] = master_high(w);
    low[i] = master_low(w);
  }

  AdamW args(const AdamWScalars& scalars, GradForm grad, MasterForm form, size_t begin, size_t count) {
    const bool split = form == MasterForm::split;
    return {.scalars = scalars,
            .count = static_cast<int64_t>(count),
            .grad_bf16 = grad == GradForm::bf16 ? grad_bf16.data() + begin : nullptr,
            .grad_f32 = grad == GradForm::f32 ? grad_f32.data() + begin : nullptr,
            .m = m.data() + begin,
            .v = v.data() + begin,
            .weight = split ? weight.data() + begin : nullptr,
            .low = split ? low.data() + begin : nullptr,
            .master = split ? nullptr : master.data() + begin};
  }

  std::vector<uint32_t> state_bits(MasterForm form) const {
    std::vector<uint32_t> bits;
    for (size_t i = 0; i < m.size(); ++i) {
      bits.push_back(std::bit_cast<uint32_t>(m[i]));
      bits.push_back(std::bit_cast<uint32_t>(v[i]));
      bits.push_back(std::bit_cast<uint32_t>(form == MasterForm::split ? join_master(weight[i], low[i]) : master[i]));
    }
    return bits;
  }
};

AdamWScalars usual_scalars() {
  return {.clip = 0.37f,
          .beta2 = 0.999f,
          .one_minus_beta1 = 0.1f,
          .one_minus_beta2 = 0.001f,
          .inv_sqrt_bias2 = 5.0f,
          .eps = 1e-8f,
          .step_size = 1e-3f,
          .decay = 0.99999f};
}

// A random magnitude from denormals to `top`, including zeros of either sign.
float any_magnitude(uint32_t r, int top_exponent) {
  const float sign = (r & 1u) != 0 ? -1.0f : 1.0f;
  if (((r >> 1) & 15u) == 0) return sign * 0.0f;
  const int exponent = -149 + static_cast<int>((r >> 5) % static_cast<uint32_t>(top_exponent + 149));
  const float mantissa = 1.0f + static_cast<float>((r >> 9) & 0x7FFFFFu) * 0x1.0p-23f;
  return sign * std::ldexp(mantissa, exponent);
}

// Random planes over the whole range in which the update stays finite.
Planes wild_planes(size_t n, uint64_t seed) {
  Planes planes(n);
  for (size_t i = 0; i < n; ++i) {
    const RandomBlock r = philox(seed, 1, i);
    planes.set(i, any_magnitude(r[0], 60), any_magnitude(r[1], 60), std::fabs(any_magnitude(r[2], 120)),
               any_magnitude(r[3], 126));
  }
  return planes;
}

TEST(AdamW, EveryInstructionSetGivesTheBitsOfTheScalarPass) {
  ASSERT_GE(simds_here().size(), 2u);
  const size_t n = 100'003;
  for (const GradForm grad : kGradForms) {
    for (const MasterForm form : kMasterForms) {
      Planes expected = wild_planes(n, 7);
      ASSERT_TRUE(adamw_cpu(expected.args(usual_scalars(), grad, form, 0, n), Simd::scalar));
      for (const Simd simd : simds_here()) {
        Planes planes = wild_planes(n, 7);
        EXPECT_TRUE(adamw_cpu(planes.args(usual_scalars(), grad, form, 0, n), simd));
        EXPECT_EQ(planes.state_bits(form), expected.state_bits(form)) << simd_name(simd);
      }
    }
  }
}

TEST(AdamW, EveryTailLengthAndOffsetUpdatesExactlyItsElements) {
  for (const Simd simd : simds_here()) {
    for (size_t count = 0; count <= 70; ++count) {
      for (const GradForm grad : kGradForms) {
        for (const MasterForm form : kMasterForms) {
          const size_t begin = count % 5;
          Planes expected = wild_planes(80, count);
          for (size_t i = begin; i < begin + count; ++i) {
            ASSERT_TRUE(adamw_cpu(expected.args(usual_scalars(), grad, form, i, 1), Simd::scalar));
          }
          Planes planes = wild_planes(80, count);
          EXPECT_TRUE(adamw_cpu(planes.args(usual_scalars(), grad, form, begin, count), simd));
          EXPECT_EQ(planes.state_bits(form), expected.state_bits(form)) << simd_name(simd) << ", " << count;
        }
      }
    }
  }
}

TEST(AdamW, TheSplitMasterIsThePlainMaster) {
  const size_t n = 10'007;
  for (const Simd simd : simds_here()) {
    Planes split = wild_planes(n, 3), plain = wild_planes(n, 3);
    for (int step = 0; step < 10; ++step) {
      ASSERT_TRUE(adamw_cpu(split.args(usual_scalars(), GradForm::bf16, MasterForm::split, 0, n), simd));
      ASSERT_TRUE(adamw_cpu(plain.args(usual_scalars(), GradForm::f32, MasterForm::plain, 0, n), simd));
    }
    EXPECT_EQ(split.state_bits(MasterForm::split), plain.state_bits(MasterForm::plain)) << simd_name(simd);
  }
}

TEST(AdamW, FollowsTheFormulaInDouble) {
  const AdamWScalars s = usual_scalars();
  for (const Simd simd : simds_here()) {
    for (uint64_t i = 0; i < 1000; ++i) {
      const auto [g0, m0] = random_normal_pair(5, 0, i);
      const auto [v0, w0] = random_normal_pair(5, 1, i);
      Planes planes(1);
      planes.set(0, g0, m0, v0 * v0, w0);
      const double g = static_cast<double>(planes.grad_f32[0]) * s.clip;
      const double m = m0 + (g - m0) * s.one_minus_beta1;
      const double v = static_cast<double>(v0 * v0) * s.beta2 + g * g * s.one_minus_beta2;
      const double w = static_cast<double>(w0) * s.decay - s.step_size * m / (std::sqrt(v) * s.inv_sqrt_bias2 + s.eps);
      ASSERT_TRUE(adamw_cpu(planes.args(s, GradForm::bf16, MasterForm::plain, 0, 1), simd));
      EXPECT_NEAR(planes.m[0], m, 3e-7 * (std::fabs(m0) + std::fabs(g)));
      EXPECT_NEAR(planes.v[0], v, 3e-7 * v);
      EXPECT_NEAR(planes.master[0], w, 3e-7 * (std::fabs(w) + s.step_size * std::fabs(m) / std::sqrt(v)));
    }
  }
}

TEST(AdamW, PaddingOfZerosStaysPositiveZero) {
  for (const Simd simd : simds_here()) {
    Planes planes(128);
    EXPECT_TRUE(adamw_cpu(planes.args(usual_scalars(), GradForm::bf16, MasterForm::split, 0, 128), simd));
    EXPECT_EQ(planes.state_bits(MasterForm::split), Planes(128).state_bits(MasterForm::split)) << simd_name(simd);
  }
}

TEST(AdamW, MomentsBelowTwoToTheMinusHundredAreStoredAsZero) {
  AdamWScalars s = usual_scalars();
  s.beta2 = 1.0f;
  for (const Simd simd : simds_here()) {
    const float limit = 0x1.0p-100f, below = std::nextafter(limit, 0.0f);
    Planes planes(4);
    s.one_minus_beta1 = 0.0f;
    planes.set(0, 0, limit, limit, 1);
    planes.set(1, 0, below, below, 1);
    planes.set(2, 0, -limit, limit, 1);
    planes.set(3, 0, -below, below, 1);
    EXPECT_TRUE(adamw_cpu(planes.args(s, GradForm::none, MasterForm::plain, 0, 4), simd));
    const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
    EXPECT_EQ(planes.m[0], limit);
    EXPECT_EQ(planes.m[2], -limit);
    EXPECT_EQ(planes.v[0], limit);
    EXPECT_EQ(bits(planes.m[1]), 0u) << simd_name(simd);
    EXPECT_EQ(bits(planes.m[3]), 0u) << simd_name(simd);
    EXPECT_EQ(bits(planes.v[1]), 0u) << simd_name(simd);
  }
}

TEST(AdamW, SaysWhenAMasterOrItsBf16WeightIsNotFinite) {
  AdamWScalars still = usual_scalars();
  still.step_size = 0;
  still.decay = 1;
  const auto finite_after = [&](Simd simd, MasterForm form, size_t at, uint32_t bits) {
    Planes planes(37);
    planes.set(at, 0, 0, 0, std::bit_cast<float>(bits));
    return adamw_cpu(planes.args(still, GradForm::none, form, 0, 37), simd);
  };
  for (const Simd simd : simds_here()) {
    for (const MasterForm form : kMasterForms) {
      for (const size_t at : {size_t{0}, size_t{17}, size_t{36}}) {
        for (const uint32_t sign : {0u, 0x80000000u}) {
          EXPECT_TRUE(finite_after(simd, form, at, sign | 0x7F7F7FFFu));   // the largest that rounds to a finite bf16
          EXPECT_FALSE(finite_after(simd, form, at, sign | 0x7F7F8000u));  // finite, but its bf16 is infinite
          EXPECT_FALSE(finite_after(simd, form, at, sign | 0x7F7FFFFFu));
          EXPECT_FALSE(finite_after(simd, form, at, sign | 0x7F800000u));  // infinite
          EXPECT_FALSE(finite_after(simd, form, at, sign | 0x7F800001u));  // NaNs
          EXPECT_FALSE(finite_after(simd, form, at, sign | 0x7FFFFFFFu));
        }
      }
    }
  }
}

TEST(AdamW, SaysWhenAGradientIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const Simd simd : simds_here()) {
    for (const GradForm grad : {GradForm::bf16, GradForm::f32}) {
      for (const MasterForm form : kMasterForms) {
        for (const float bad : {infinity, -infinity, nan}) {
          for (const size_t at : {size_t{5}, size_t{32}}) {
            Planes planes(33);
            EXPECT_TRUE(adamw_cpu(planes.args(usual_scalars(), grad, form, 0, 33), simd));
            planes.grad_bf16[at] = to_bf16(bad);
            planes.grad_f32[at] = bad;
            EXPECT_FALSE(adamw_cpu(planes.args(usual_scalars(), grad, form, 0, 33), simd)) << simd_name(simd);
          }
        }
      }
    }
  }
}

TEST(AdamW, SaysWhenAMomentIsNotFiniteThoughTheWeightIs) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  AdamWScalars still = usual_scalars();
  still.step_size = 0;  // keeps the weight finite even with an infinite second moment
  for (const Simd simd : simds_here()) {
    for (const GradForm grad : kGradForms) {
      for (const MasterForm form : kMasterForms) {
        for (const size_t at : {size_t{0}, size_t{17}, size_t{36}}) {
          const auto finite_after = [&](float m, float v, const AdamWScalars& scalars) {
            Planes planes(37);
            for (size_t i = 0; i < 37; ++i) planes.set(i, 0.5f, 0.1f, 0.1f, 1.0f);
            planes.m[at] = m;
            planes.v[at] = v;
            return adamw_cpu(planes.args(scalars, grad, form, 0, 37), simd);
          };
          const float largest = std::numeric_limits<float>::max();
          EXPECT_TRUE(finite_after(0.1f, largest, usual_scalars())) << simd_name(simd);
          EXPECT_TRUE(finite_after(largest, largest, still)) << simd_name(simd);
          EXPECT_FALSE(finite_after(0.1f, infinity, usual_scalars())) << simd_name(simd) << " at " << at;
          for (const float bad : {infinity, -infinity, nan}) {
            EXPECT_FALSE(finite_after(bad, 0.1f, usual_scalars())) << simd_name(simd) << " at " << at;
            EXPECT_FALSE(finite_after(0.1f, bad, still)) << simd_name(simd) << " at " << at;
          }
        }
      }
    }
  }
}

TEST(AdamW, SaysWhenTheSquareOfAGradientIsNoFloat) {
  for (const Simd simd : simds_here()) {
    for (const GradForm grad : {GradForm::bf16, GradForm::f32}) {
      for (const MasterForm form : kMasterForms) {
        for (const float g : {0x1.0p60f, 0x1.0p70f, -0x1.0p70f}) {
          Planes planes(20);
          planes.set(19, g, 0.0f, 0.0f, 1.0f);
          EXPECT_EQ(adamw_cpu(planes.args(usual_scalars(), grad, form, 0, 20), simd), g == 0x1.0p60f)
              << simd_name(simd) << ", " << g;
        }
      }
    }
  }
}

TEST(AdamW, SaysWhenAnUpdateOverflows) {
  AdamWScalars s = usual_scalars();
  s.step_size = 1e30f;
  for (const Simd simd : simds_here()) {
    Planes planes(20);
    planes.set(19, 1.0f, 1e20f, 1e-20f, 0.0f);
    EXPECT_FALSE(adamw_cpu(planes.args(s, GradForm::bf16, MasterForm::split, 0, 20), simd)) << simd_name(simd);
  }
}

TEST(AdamW, RefusesArgumentsWithoutExactlyOneMasterOrWithTwoGradients) {
  Planes planes(4);
  AdamW both = planes.args(usual_scalars(), GradForm::bf16, MasterForm::split, 0, 4);
  both.master = planes.master.data();
  EXPECT_THROW(adamw_cpu(both, Simd::scalar), Error);
  AdamW none = planes.args(usual_scalars(), GradForm::bf16, MasterForm::plain, 0, 4);
  none.master = nullptr;
  EXPECT_THROW(adamw_cpu(none, Simd::scalar), Error);
  AdamW half = planes.args(usual_scalars(), GradForm::bf16, MasterForm::plain, 0, 4);
  half.low = planes.low.data();
  EXPECT_THROW(adamw_cpu(half, Simd::scalar), Error);
  AdamW gradients = planes.args(usual_scalars(), GradForm::bf16, MasterForm::plain, 0, 4);
  gradients.grad_f32 = planes.grad_f32.data();
  EXPECT_THROW(adamw_cpu(gradients, Simd::scalar), Error);
}

TEST(AdamW, RefusesAnInstructionSetThisCpuLacks) {
  const Simd foreign = simd_runs_here(Simd::neon) ? Simd::avx2 : Simd::neon;
  Planes planes(4);
  EXPECT_THROW(adamw_cpu(planes.args(usual_scalars(), GradForm::bf16, MasterForm::split, 0, 4), foreign), Error);
  EXPECT_TRUE(simd_runs_here(best_simd()));
}

TEST(AdamW, EveryInstructionSetArrivesAtTheCommittedHashInBothForms) {
  for (const Simd simd : simds_here()) {
    for (const bool split : {true, false}) {
      bool finite = true;
      const auto update = [&](const AdamW& args) { finite &= adamw_cpu(args, simd); };
      EXPECT_EQ(adamw_hash(/*bf16_gradient=*/split, split, update), kAdamWHash) << simd_name(simd);
      EXPECT_TRUE(finite);
    }
  }
}

}  // namespace
}  // namespace megatrain
