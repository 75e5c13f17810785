#include "megatrain/engine/stall_watch.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/log.h"

namespace megatrain {

StallWatch::StallWatch(StallLimits limits, std::function<void(const std::string&)> end)
    : limits_(limits), end_(std::move(end)), thread_([this] { loop(); }) {}

StallWatch::~StallWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void StallWatch::set(const Pipeline* pipeline) {
  std::lock_guard lock(mutex_);
  pipeline_ = pipeline;
  if (pipeline) begun_ = true;
}

std::string StallWatch::running() {
  std::lock_guard lock(mutex_);
  return pipeline_ ? pipeline_->running_actions() : "";
}

// Time is counted in checks, each poll_s apart, because the clock also runs while a process is stopped.
void StallWatch::loop() {
  std::unique_lock lock(mutex_);
  int64_t finished = 0;
  double still_s = 0;
  bool warned = false;
  while (!changed_.wait_for(lock, std::chrono::duration<double>(limits_.poll_s), [this] { return stopping_; })) {
    if (!pipeline_) continue;
    const int64_t now = pipeline_->finished_actions();
    if (std::exchange(begun_, false) || now != finished) {
      finished = now;
      still_s = 0;
      warned = false;
      continue;
    }
    still_s += limits_.poll_s;
    if (still_s >= limits_.end_s) {
      end_(fmt::format(
          "no action has finished for {:.0f} seconds ({}); the run is stuck and will stop. Check the GPU and the disk",
          still_s, pipeline_->running_actions()));
      return;
    }
    if (still_s >= limits_.warn_s && !warned) {
      warned = true;
      log_warn(fmt::format("no action has finished for {:.0f} seconds: {}", still_s, pipeline_->running_actions()));
    }
  }
}

}  // namespace megatrain
