// Tells work from a hang: while a pipeline is watched some action has to end now and then.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "megatrain/engine/pipeline.h"

namespace megatrain {

struct StallLimits {
  double warn_s = 60;  // without any action that ended: a warning that says where the lanes are
  double end_s = 600;  // and then the end
  double poll_s = 2;
};

class StallWatch {
 public:
  // `end` is called on the watch's own thread with a sentence; lanes that hang cannot be joined, so it must not return
  // into their destructors. A process that was stopped and continued has not stalled.
  StallWatch(StallLimits limits, std::function<void(const std::string&)> end);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // The actions that have begun and not ended, by lane, from any thread; empty: no pipeline is watched.
  std::string running();

  // Watches until it is destroyed; one at a time, by the thread that issues to the pipeline.
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
  std::mutex mutex_;  // guards the rest; held while a pipeline is looked at, so that it outlives the look
  std::condition_variable changed_;
  const Pipeline* pipeline_ = nullptr;
  bool begun_ = false;  // a watching since the last look
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace megatrain
