// A stream that is a worker thread, and the event that it records. The CPU device consists of these; on a GPU machine
// the update lane is one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "megatrain/device/device.h"

namespace megatrain {

// Each record() takes the next ticket, and the flag reaches it when the worker gets there. The flag may be in memory
// that a GPU can read, so that a CUDA stream can wait for host work.
class HostEvent : public Event {
 public:
  explicit HostEvent(std::atomic<uint32_t>* flag = nullptr) : flag_(flag ? flag : &own_flag_) {}

  void block() override { block_until(ticket()); }
  void block_until(uint32_t ticket) const {
    uint32_t reached = flag_->load(std::memory_order_acquire);
    while (!is_reached(reached, ticket)) {
      flag_->wait(reached, std::memory_order_acquire);
      reached = flag_->load(std::memory_order_acquire);
    }
  }

  bool reached() const override { return is_reached(flag_->load(std::memory_order_acquire), ticket()); }

  uint32_t ticket() const { return ticket_.load(std::memory_order_relaxed); }  // of the last record
  std::atomic<uint32_t>* flag() const { return flag_; }
  int64_t reached_ns() const { return reached_ns_; }  // time of the last record; call block() first

  // For the stream: issue() in program order, then reach() on the worker.
  uint32_t issue() { return ticket_.fetch_add(1, std::memory_order_relaxed) + 1; }
  void reach(uint32_t ticket);

 private:
  // Tickets may wrap around.
  static bool is_reached(uint32_t flag, uint32_t ticket) { return static_cast<int32_t>(flag - ticket) >= 0; }

  std::atomic<uint32_t> ticket_{0};  // written only by the issuing thread
  int64_t reached_ns_ = 0;
  std::atomic<uint32_t> own_flag_{0};
  std::atomic<uint32_t>* flag_;
};

std::unique_ptr<HostStream> make_worker_stream(const std::string& name);

}  // namespace megatrain
