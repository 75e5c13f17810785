// Tells slow work from a hang: while a pipeline is watched, some action must end every so often.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "megatrain/engine/pipeline.h"

namespace megatrain {

struct StallLimits {
  // Seconds without any action ending after which a warning says where the lanes are.
  double warn_s = 60;
  double end_s = 600;  // and after which `end` is called
  double poll_s = 2;
};

class StallWatch {
 public:
  // `end` is called on the watch's own thread with a sentence. Lanes that hang cannot be joined, so it must not return
  // into their destructors. A process that was stopped and continued does not count as stalled.
  StallWatch(StallLimits limits, std::function<void(const std::string&)> end);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // The actions that have begun but not ended, by lane; empty: no pipeline is watched. May be called from any thread.
  std::string running();

  // Watches until destroyed. One at a time, by the thread that issues to the pipeline.
  class Watching {
   public:
    Watching(StallWatch& watch, const Pipeline& pipeline) : watch_(watch) { watch_.set(&pipeline); }
    ~Watching() { watch_.set(nullptr); }
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;

   private:
    StallWatch& watch_;
  };

 private:
  void set(const Pipeline* pipeline);
  void loop();

  StallLimits limits_;
  std::function<void(const std::string&)> end_;
  std::mutex mutex_;  // guards the rest; held while a pipeline is inspected, so that it stays alive
  std::condition_variable changed_;
  const Pipeline* pipeline_ = nullptr;
  bool begun_ = false;  // a Watching began since the last check
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace megatrain
