#include "megatrain/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace megatrain {
namespace {

// Known answers published with the generator (Random123, kat_vectors, philox4x32-10).
TEST(Philox, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (RandomBlock{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (RandomBlock{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull),
            (RandomBlock{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Rng, NormalsHaveMeanZeroAndVarianceOne) {
  double sum = 0, squares = 0;
  const int pairs = 100'000;
  for (uint64_t i = 0; i < pairs; ++i) {
    for (const float x : random_normal_pair(1, 2, i)) {
      ASSERT_TRUE(std::isfinite(x));
      sum += x;
      squares += static_cast<double>(x) * x;
    }
  }
  EXPECT_NEAR(sum / (2 * pairs), 0, 0.01);
  EXPECT_NEAR(squares / (2 * pairs), 1, 0.02);
}

TEST(Rng, UniformsLieWhereTheyShould) {
  EXPECT_GT(uniform_open(0), 0);
  EXPECT_LT(uniform_open(0xFFFFFFFFu), 1);
  int counts[10] = {};
  for (uint64_t i = 0; i < 100'000; ++i) {
    const double u = random_uniform(3, 4, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    const uint64_t below = random_below(3, 5, i, 10);
    ASSERT_LT(below, 10u);
    ++counts[below];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
}

}  // namespace
}  // namespace megatrain
