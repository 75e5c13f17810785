#include "megatrain/serve/request_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <mutex>
#include <vector>

namespace megatrain {

namespace {

constexpr int64_t kSmall = 100, kLarge = 1000;
constexpr RequestPoolOptions kOptions = {
    .most_small_bytes = kSmall, .small_threads = 2, .most_small_requests = 3, .most_large_bytes = 3 * kLarge};

}  // namespace

TEST(RequestPool, ASmallRequestIsReadWhileLargeOnesWait) {
  std::promise<void> go, done;
  std::shared_future<void> gone(go.get_future());
  std::atomic<int> large = 0;
  RequestPool pool(kOptions);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(pool.post(kLarge, [&, gone] {
      gone.wait();
      ++large;
    }));
  }
  EXPECT_TRUE(pool.post(kSmall, [&] { done.set_value(); }));
  done.get_future().wait();
  EXPECT_EQ(large, 0) << "it did not wait for one of them";
  go.set_value();
}

TEST(RequestPool, OneSlowSmallRequestDoesNotHoldTheNext) {
  std::promise<void> go, done;
  RequestPool pool(kOptions);
  EXPECT_TRUE(pool.post(0, [&] { go.get_future().wait(); }));
  EXPECT_TRUE(pool.post(0, [&] { done.set_value(); }));
  done.get_future().wait();
  go.set_value();
}

TEST(RequestPool, LargeRequestsAreReadInOrder) {
  std::promise<void> done;
  std::vector<int> seen;
  RequestPool pool(kOptions);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.post(kLarge - 10, [&seen, i] { seen.push_back(i); }));
  while (!pool.post(kLarge, [&] { done.set_value(); })) std::this_thread::yield();
  done.get_future().wait();
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2}));
}

TEST(RequestPool, RefusesWhatIsMoreThanItHolds) {
  std::promise<void> go;
  std::shared_future<void> gone(go.get_future());
  RequestPool pool(kOptions);
  const auto wait = [gone] { gone.wait(); };
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(pool.post(kSmall, wait));
    EXPECT_TRUE(pool.post(kLarge, wait));
  }
  EXPECT_FALSE(pool.post(kSmall, wait));
  EXPECT_FALSE(pool.post(kLarge, wait));
  go.set_value();
  while (!pool.post(kLarge, wait)) std::this_thread::yield();
  std::latch more(1);
  while (!pool.post(kSmall, [&] { more.count_down(); })) std::this_thread::yield();
  more.wait();
}

TEST(RequestPool, OneThatIsLargerThanAllMayBeIsTakenAlone) {
  std::promise<void> go;
  RequestPool pool(kOptions);
  EXPECT_TRUE(pool.post(100 * kLarge, [&] { go.get_future().wait(); }));
  EXPECT_FALSE(pool.post(kLarge, [] {}));
  go.set_value();
}

TEST(RequestPool, DropsWhatHasNotBegunWhenItGoes) {
  std::promise<void> go, begun;
  std::atomic<int> calls = 0;
  std::thread opens;
  {
    RequestPool pool(kOptions);
    EXPECT_TRUE(pool.post(kLarge, [&] {
      begun.set_value();
      go.get_future().wait();
    }));
    begun.get_future().wait();
    EXPECT_TRUE(pool.post(kLarge, [&] { ++calls; }));
    opens = std::thread([&] { go.set_value(); });
  }
  opens.join();
  EXPECT_LE(calls, 1) << "it may have begun before the end was said, and nothing hangs";
}

}  // namespace megatrain
