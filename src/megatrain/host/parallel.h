// A parallel loop with its own thread team whose bodies may throw, and a way to order parts of the bodies.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

#include "megatrain/host/thread_team.h"

namespace megatrain {

// Calls body(index) for every index in [0, count), started in ascending order. The first exception stops the rest and
// is rethrown here. `threads` 0: all usable CPUs.
template <class Body>
void parallel_for(int threads, int64_t count, const Body& body) {
  ThreadTeam team(team_size(threads));
  std::mutex mutex;
  std::exception_ptr error;
  std::atomic<bool> failed{false};
  team.parallel_for(count, [&](int64_t i) {
    if (failed) return;
    try {
      body(i);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      failed = true;
    }
  });
  if (error) std::rethrow_exception(error);
}

// Lets loop bodies pass one at a time, in the order of their indices.
class InOrder {
 public:
  // Calls work() once all lower indices have passed. Every index must pass, unless one calls give_up().
  template <class Work>
  void pass(int64_t index, const Work& work) {
    {
      std::unique_lock lock(mutex_);
      turn_.wait(lock, [&] { return next_ == index || given_up_; });
      if (given_up_) return;
    }
    work();
    {
      std::lock_guard lock(mutex_);
      ++next_;
    }
    turn_.notify_all();
  }

  // Releases all waiting callers; no more work is done.
  void give_up() {
    {
      std::lock_guard lock(mutex_);
      given_up_ = true;
    }
    turn_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  int64_t next_ = 0;
  bool given_up_ = false;
};

}  // namespace megatrain
