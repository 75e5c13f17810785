// A loop on a team of its own whose bodies may throw, and an order that they can keep among themselves.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

#include "megatrain/host/thread_team.h"

namespace megatrain {

// Calls body(index) for every index in [0, count), begun in ascending order; the first exception stops the rest and is
// thrown here. `threads` 0: all usable CPUs.
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

// Lets the bodies of a loop through one at a time, in the order of their indices.
class InOrder {
 public:
  // Calls work() when all lower indices have passed. Every index passes, or one of them calls give_up().
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

  // No caller waits any more, and no more work is done.
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
