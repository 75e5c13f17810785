#include "megatrain/run/rising_loss.h"

#include <gtest/gtest.h>

#include <iterator>
#include <vector>

namespace megatrain {
namespace {

// The evaluations, from 1, at which it reports; the n-th is of step 10 n.
std::vector<int> reported_at(const std::vector<double>& losses) {
  RisingLoss rising;
  std::vector<int> reported;
  for (int i = 0; i < std::ssize(losses); ++i) {
    if (rising.look(10 * (i + 1), losses[static_cast<size_t>(i)])) reported.push_back(i + 1);
  }
  return reported;
}

using Evaluated = std::vector<int>;

TEST(RisingLoss, IsReportedOnceWhenItRoseTwiceInARow) {
  EXPECT_EQ(reported_at({2.5, 2.1, 2.2, 2.3, 2.4, 2.5}), Evaluated{4});
  EXPECT_EQ(reported_at({2.1, 2.2, 2.15, 2.2, 2.25}), Evaluated{5}) << "twice in a row, not twice in all";
}

TEST(RisingLoss, ThatIsFarAboveTheLowestIsReportedAtOnce) {
  EXPECT_EQ(reported_at({8.3, 257807}), Evaluated{2});
  EXPECT_EQ(reported_at({2.0, 3.2}), Evaluated{2});
  EXPECT_EQ(reported_at({2.0, 2.9}), Evaluated{});
  EXPECT_EQ(reported_at({0.01, 0.2}), Evaluated{}) << "twenty times, of nearly nothing";
}

TEST(RisingLoss, IsReportedAgainOnlyAfterANewLowest) {
  EXPECT_EQ(reported_at({2.0, 2.1, 2.2, 2.1, 2.2, 2.3, 1.9, 2.0, 2.1}), (Evaluated{3, 9}));
}

TEST(RisingLoss, OfNoiseIsNotReported) {
  EXPECT_EQ(reported_at({2.0, 2.001, 2.002, 2.003}), Evaluated{});
  EXPECT_EQ(reported_at({0.0015, 0.0016, 0.0017}), Evaluated{});
  EXPECT_EQ(reported_at({3, 2, 1, 0.5, 0.5, 0.5}), Evaluated{});
}

TEST(RisingLoss, NamesTheLowestAndTheLastTwo) {
  RisingLoss rising;
  for (const auto& [step, loss] : {std::pair{10, 2.5}, {20, 2.1}, {30, 2.3}, {40, 2.2}, {50, 2.25}, {60, 2.4}})
    rising.look(step, loss);
  EXPECT_EQ(rising.sentence(),
            "the evaluation loss rises: 2.1000 at step 20 (the lowest), then 2.2500 at step 50 and 2.4000 at step 60");
}

}  // namespace
}  // namespace megatrain
