#include "megatrain/host/thread_team.h"

#include <pthread.h>
#include <sched.h>

namespace megatrain {

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

int team_size(int64_t asked) { return static_cast<int>(asked > 0 ? asked : std::ssize(usable_cpus())); }

ThreadTeam::ThreadTeam(int members, std::vector<int> cpus) : ThreadTeam() {
  for (int i = 1; i < members; ++i) {
    const int cpu = cpus.empty() ? -1 : cpus[static_cast<size_t>(i) % cpus.size()];
    threads_.emplace_back([this, cpu] { member_loop(cpu); });
  }
}

ThreadTeam::~ThreadTeam() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Waits for its turn; destroying it hands the turn to the next caller.
class ThreadTeam::Turn {
 public:
  explicit Turn(ThreadTeam& team) : team_(team) {
    std::unique_lock lock(team_.turn_mutex_);
    const uint64_t ticket = team_.tickets_++;
    team_.turn_.wait(lock, [&] { return team_.serving_ == ticket; });
  }
  ~Turn() {
    {
      std::lock_guard lock(team_.turn_mutex_);
      ++team_.serving_;
    }
    team_.turn_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  ThreadTeam& team_;
};

void ThreadTeam::run(int64_t count, Call call, const void* context) {
  if (count <= 0) return;
  const Turn turn(*this);
  if (threads_.empty() || count == 1) {
    for (int64_t i = 0; i < count; ++i) call(context, i);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    call_ = call;
    context_ = context;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    active_ = static_cast<int>(threads_.size());
    ++generation_;
  }
  start_.notify_all();
  work();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return active_ == 0; });
}

void ThreadTeam::work() {
  for (int64_t i = next_.fetch_add(1, std::memory_order_relaxed); i < count_;
       i = next_.fetch_add(1, std::memory_order_relaxed)) {
    call_(context_, i);
  }
}

void ThreadTeam::member_loop(int cpu) {
  if (cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
  }
  uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
    }
    work();
    {
      std::lock_guard lock(mutex_);
      if (--active_ == 0) done_.notify_one();
    }
  }
}

}  // namespace megatrain
