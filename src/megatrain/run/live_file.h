// RUN/live.json: where a run is now, for who watches it from outside. A thread rewrites the file every two seconds,
// whatever the run is busy with, so a file that is old is of a run that is gone. Every text is whole: it is written
// beside the file and renamed. Nothing waits for the disk, and a file that cannot be written does not end a run. The
// file is longer than its text, so that the last text has its place where the disk is full.
//
// The file's lanes are those of a recent step. A step gives them when the thread asks, every few seconds, and the
// thread does what takes time. docs/reference/run-directory.md has the fields.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "megatrain/engine/trace.h"
#include "megatrain/io/json.h"
#include "megatrain/run/metrics.h"

namespace megatrain {

inline constexpr const char* kLiveFile = "live.json";
inline constexpr double kLiveEverySeconds = 2;

struct LiveAbout {
  int64_t step = 0, steps = 0;
  int64_t hbm_planned = 0, host_planned = 0, disk_planned = 0;  // bytes
  int64_t hbm_limit = 0;                                        // that the device has
  nlohmann::json floor;                                         // of a step; null: the machine's speeds are not known
  double every_s = kLiveEverySeconds;
};

struct LiveEnd {
  std::string state;  // "complete", "stopped", "failed"
  int exit_code = 0;
  std::string message;  // of a failure
};

class LiveFile {
 public:
  // `running` says what the lanes are in, from any thread; empty: nothing runs. The directory stays the run's under
  // whatever name.
  LiveFile(const std::string& run_dir, LiveAbout about, std::function<std::string()> running);
  ~LiveFile();
  LiveFile(const LiveFile&) = delete;
  LiveFile& operator=(const LiveFile&) = delete;

  // Whether lanes() is wanted of the step that begins now.
  bool wants_lanes() const;
  // The spans' actions outlive this object.
  void lanes(int64_t step, double seconds, std::vector<Span> spans);
  void step(const StepMetrics& metrics, int64_t hbm_used);

  // The last text; from any thread, also while the thread of this object hangs.
  void end(const LiveEnd& end);

 private:
  struct Lanes {
    int64_t step = 0;
    double seconds = 0;
    std::vector<Span> spans;
  };
  void loop();
  void write(const std::string& running);

  int directory_ = -1;
  LiveAbout about_;
  std::function<std::string()> running_;
  double started_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Lanes fresh_;           // not in the file yet
  nlohmann::json lanes_;  // of the file; null: none yet
  double lanes_s_ = 0;    // when they came
  int64_t step_ = 0, hbm_used_ = 0, hbm_peak_ = 0, host_peak_ = 0;
  LiveEnd end_{.state = "running"};
  bool stopping_ = false;
  std::mutex writing_;  // one writer at a time
  std::thread thread_;  // last: it uses everything above
};

// What the file says of lanes: {step, seconds, tracks[]{lane, busy_s, spans[][start_s, seconds, action, layer,
// count]}}. Neighbours of one kind that lie close together are one span.
nlohmann::json live_lanes(int64_t step, double seconds, const std::vector<Span>& spans);

}  // namespace megatrain
