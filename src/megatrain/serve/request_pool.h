// Threads that read requests, so that the server's thread stays free for streaming. A large body takes seconds to read,
// so large ones have a lane and a thread of their own: a small request never waits behind them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace megatrain {

struct RequestPoolOptions {
  int64_t most_small_bytes = 64 << 10;    // the largest small body
  int64_t small_threads = 2;              // rendering a template may take seconds, too
  int64_t most_small_requests = 1024;     // waiting or in work
  int64_t most_large_bytes = 64ll << 20;  // of all bodies that wait or are in work
};

class RequestPool {
 public:
  explicit RequestPool(const RequestPoolOptions& options = {});
  ~RequestPool();  // finishes work in progress and drops the rest
  RequestPool(const RequestPool&) = delete;
  RequestPool& operator=(const RequestPool&) = delete;

  // From any thread; `bytes` is the size of the body. `work` must not throw. False if too much is waiting already; the
  // work is then not done.
  [[nodiscard]] bool post(int64_t bytes, std::function<void()> work);

 private:
  struct Item {
    int64_t weight;
    std::function<void()> work;
  };
  struct Lane {
    int64_t most_weight, weight = 0;  // of what waits or is in work
    std::deque<Item> waiting = {};
  };
  void run(Lane& lane);

  int64_t most_small_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Lane small_, large_;
  bool stopping_ = false;
  std::list<std::jthread> threads_;  // last: they use everything above
};

}  // namespace megatrain
