#include "megatrain/serve/request_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace megatrain {

TEST(RequestThread, WorksInOrderWhileWhoPostsGoesOn) {
  std::promise<void> go, done;
  std::vector<int> seen;
  std::thread::id worker;
  RequestThread thread;
  thread.post([&] {
    go.get_future().wait();
    worker = std::this_thread::get_id();
  });
  for (int i = 0; i < 5; ++i) thread.post([&seen, i] { seen.push_back(i); });
  thread.post([&] { done.set_value(); });
  EXPECT_TRUE(seen.empty()) << "nothing has waited for the first";
  go.set_value();
  done.get_future().wait();
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_NE(worker, std::this_thread::get_id());
}

}  // namespace megatrain
