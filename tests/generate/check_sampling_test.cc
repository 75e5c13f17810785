#include "megatrain/generate/check_sampling.h"

#include <limits>

#include "tests/support/said.h"

namespace megatrain::generation {
namespace {

std::string refused(const Sampling& sampling, bool has_cut) {
  return refused_with(ExitCode::bad_config, [&] {
    check_sampling(sampling, has_cut, {.temperature = "heat", .top_p = "most", .top_k = "few"});
  });
}

TEST(CheckSampling, NamesTheSettingThatNoDrawCanObey) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(refused({}, false), "accepted");
  EXPECT_EQ(refused({.temperature = 1, .top_p = 0.5, .top_k = 3}, true), "accepted");
  for (const double temperature : {-0.5, kNan})
    EXPECT_EQ(refused({.temperature = temperature}, false).find("heat is"), 0U) << temperature;
  for (const double top_p : {0.0, 1.5, kNan})
    EXPECT_EQ(refused({.temperature = 1, .top_p = top_p}, true).find("most is"), 0U) << top_p;
  EXPECT_EQ(refused({.temperature = 1, .top_k = -1}, true).find("few is"), 0U);
  EXPECT_EQ(refused({}, true).find("most and few only affect sampling"), 0U) << "nothing is drawn at temperature 0";
}

}  // namespace
}  // namespace megatrain::generation
