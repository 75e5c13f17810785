#include "megatrain/host/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace megatrain {
namespace {

TEST(ParallelFor, CallsEveryIndexOnce) {
  std::vector<int> calls(1000);
  parallel_for(4, std::ssize(calls), [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
  EXPECT_EQ(calls, std::vector<int>(1000, 1));
}

TEST(ParallelFor, ThrowsTheFirstExceptionAndBeginsNothingAfterIt) {
  std::atomic<int64_t> begun{0};
  const auto fails = [&](int64_t i) {
    ++begun;
    if (i == 10) throw std::runtime_error("no");
    if (i > 10) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // so that not all begin before the error
  };
  EXPECT_THROW(parallel_for(4, 1000, fails), std::runtime_error);
  EXPECT_LT(begun, 1000);
  begun = 0;
  EXPECT_THROW(parallel_for(1, 1000, fails), std::runtime_error);
  EXPECT_EQ(begun, 11);
}

TEST(InOrder, TwoStagesEachSeeEveryIndexInOrder) {
  InOrder first, second;
  std::vector<int64_t> a, b;
  parallel_for(4, 500, [&](int64_t i) {
    first.pass(i, [&] { a.push_back(i); });
    second.pass(i, [&] { b.push_back(i); });
  });
  ASSERT_EQ(a.size(), 500u);
  EXPECT_EQ(a, b);
  EXPECT_TRUE(std::is_sorted(a.begin(), a.end()));
}

TEST(InOrder, NobodyWaitsForAnIndexThatFailed) {
  InOrder order;
  std::vector<int64_t> passed;
  EXPECT_THROW(parallel_for(4, 500,
                            [&](int64_t i) {
                              if (i == 20) {
                                order.give_up();
                                throw std::runtime_error("no");
                              }
                              order.pass(i, [&] { passed.push_back(i); });
                            }),
               std::runtime_error);
  EXPECT_LE(passed.size(), 20u);
}

}  // namespace
}  // namespace megatrain
