#include "megatrain/device/cpu/host_stream.h"

#include <pthread.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"

namespace megatrain {

void HostEvent::reach(uint32_t ticket) {
  reached_ns_ = now_ns();
  flag_->store(ticket, std::memory_order_release);
  flag_->notify_all();
}

namespace {

class WorkerStream : public HostStream {
 public:
  explicit WorkerStream(const std::string& name) : worker_([this] { loop(); }) {
    pthread_setname_np(worker_.native_handle(), name.substr(0, 15).c_str());
  }

  ~WorkerStream() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    ready_.notify_one();
    worker_.join();
  }

  void run(std::function<void()> work) override { push({.work = std::move(work)}); }

  void copy(void* to, const void* from, size_t bytes) override {
    run([=] { std::memcpy(to, from, bytes); });
  }

  void zero(void* to, size_t bytes) override {
    run([=] { std::memset(to, 0, bytes); });
  }

  void record(Event& event) override {
    auto& host = dynamic_cast<HostEvent&>(event);
    push({.event = &host, .ticket = host.issue()});
  }

  void wait(Event& event) override {
    if (auto* host = dynamic_cast<HostEvent*>(&event)) {
      push({.work = [host, ticket = host->ticket()] { host->block_until(ticket); }, .waits = true});
    } else {
      push({.work = [&event] { event.block(); }, .waits = true});
    }
  }

  void synchronize() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return queue_.empty() && !busy_; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void check() override {
    std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  struct Item {
    std::function<void()> work = nullptr;  // if empty, the item records an event
    bool waits = false;                    // the work waits for an event
    HostEvent* event = nullptr;
    uint32_t ticket = 0;
  };

  void push(Item item) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(item));
    }
    ready_.notify_one();
  }

  // After a failure only waits and records are processed. So every wait for this stream still ends, and not too early:
  // other streams keep off memory that is in use.
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Item item = std::move(queue_.front());
      queue_.pop_front();
      const bool failed = error_ != nullptr;
      busy_ = true;
      lock.unlock();
      std::exception_ptr error;
      if (item.event) {
        item.event->reach(item.ticket);
      } else if (!failed || item.waits) {
        try {
          item.work();
        } catch (...) {
          error = std::current_exception();
        }
      }
      item.work = nullptr;
      lock.lock();
      if (!error_) error_ = error;
      busy_ = false;
      if (queue_.empty()) idle_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_, idle_;
  std::deque<Item> queue_;
  std::exception_ptr error_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread worker_;  // last: it uses everything above
};

}  // namespace

std::unique_ptr<HostStream> make_worker_stream(const std::string& name) { return std::make_unique<WorkerStream>(name); }

}  // namespace megatrain
