#include "megatrain/serve/request_pool.h"

#include <utility>

namespace megatrain {

RequestPool::RequestPool(const RequestPoolOptions& options)
    : most_small_bytes_(options.most_small_bytes),
      small_{.most_weight = options.most_small_requests},
      large_{.most_weight = options.most_large_bytes} {
  for (int64_t i = 0; i < options.small_threads; ++i) threads_.emplace_back([this] { run(small_); });
  threads_.emplace_back([this] { run(large_); });
}

RequestPool::~RequestPool() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

bool RequestPool::post(int64_t bytes, std::function<void()> work) {
  const bool is_small = bytes <= most_small_bytes_;
  Lane& lane = is_small ? small_ : large_;
  const int64_t weight = is_small ? 1 : bytes;
  const std::lock_guard lock(mutex_);
  // An empty lane accepts a request of any size; otherwise a very large one could never be accepted.
  if (lane.weight > 0 && lane.weight + weight > lane.most_weight) return false;
  lane.weight += weight;
  lane.waiting.push_back({.weight = weight, .work = std::move(work)});
  changed_.notify_all();  // all: a single one woken may belong to the other lane
  return true;
}

void RequestPool::run(Lane& lane) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !lane.waiting.empty(); });
    if (stopping_) return;
    Item item = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    lock.unlock();
    item.work();
    item.work = nullptr;  // free what it holds before its place, and without the lock
    lock.lock();
    lane.weight -= item.weight;
  }
}

}  // namespace megatrain
