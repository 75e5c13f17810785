#include "megatrain/serve/request_thread.h"

#include <utility>

namespace megatrain {

RequestThread::~RequestThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void RequestThread::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    works_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void RequestThread::run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !works_.empty(); });
      if (stopping_) return;
      work = std::move(works_.front());
      works_.pop_front();
    }
    work();
  }
}

}  // namespace megatrain
