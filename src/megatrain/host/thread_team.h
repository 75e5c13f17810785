// A team of pinned threads that share loops. The caller is a member: a team of 1 starts no thread.
//
// Any member may run any index, so the result of a loop body must depend only on its index.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace megatrain {

class ThreadTeam {
 public:
  // Members beyond the caller are pinned round-robin to `cpus` when it is not empty.
  explicit ThreadTeam(int members, std::vector<int> cpus = {});
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int members() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls body(index) for every index in [0, count) and returns when all are done. One loop at a time: other callers
  // wait, first come first served. The body must not throw and must not call the same team.
  template <class Body>
  void parallel_for(int64_t count, const Body& body) {
    run(
        count, [](const void* context, int64_t index) { (*static_cast<const Body*>(context))(index); }, &body);
  }

 private:
  // Fully constructed before threads are started: if one cannot be started, the destructor joins the others.
  ThreadTeam() = default;

  using Call = void (*)(const void*, int64_t);
  class Turn;
  void run(int64_t count, Call call, const void* context);
  void work();
  void member_loop(int cpu);

  std::vector<std::thread> threads_;
  std::mutex turn_mutex_;  // guards the next three
  std::condition_variable turn_;
  uint64_t tickets_ = 0, serving_ = 0;  // tickets of loops; one is served at a time
  std::mutex mutex_;                    // guards the fields below
  std::condition_variable start_, done_;
  uint64_t generation_ = 0;
  int active_ = 0;
  bool stopping_ = false;
  Call call_ = nullptr;
  const void* context_ = nullptr;
  int64_t count_ = 0;
  std::atomic<int64_t> next_{0};
};

// Logical CPUs that this process may use.
std::vector<int> usable_cpus();

// The team size for a requested number; 0 is one member per usable CPU.
int team_size(int64_t asked);

}  // namespace megatrain
