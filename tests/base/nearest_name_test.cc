#include "megatrain/base/nearest_name.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace megatrain {
namespace {

TEST(NearestName, IsTheFirstOfTheLeastDistant) {
  NearestName nearest("setps");
  EXPECT_EQ(nearest.found(), "");
  for (const char* const known : {"batch", "steps", "seps", "set_s"}) nearest.consider(known);
  EXPECT_EQ(nearest.found(), "steps");
}

TEST(NearestName, IsEmptyWhereMoreThanTypingErrorsLieBetween) {
  NearestName nearest("lora_rank");
  nearest.consider("data.labels");
  EXPECT_EQ(nearest.found(), "");
  NearestName strict("steps", 0);
  strict.consider("step");
  EXPECT_EQ(strict.found(), "");
  strict.consider("steps");
  EXPECT_EQ(strict.found(), "steps");
}

TEST(NearestName, MeasuresAsToldAndSaysTheNameThatAnotherSpellingStandsFor) {
  const auto by_length = [](const std::string& a, const std::string& b) {
    return static_cast<int64_t>(std::max(a.size(), b.size()) - std::min(a.size(), b.size()));
  };
  NearestName nearest("abcd", 2, by_length);
  nearest.consider("zz");
  nearest.consider("zzz", "what zzz stands for");
  EXPECT_EQ(nearest.found(), "what zzz stands for");
}

}  // namespace
}  // namespace megatrain
