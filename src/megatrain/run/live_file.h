// RUN/live.json: where a run is now, for watching it from outside. A thread rewrites the file every two seconds,
// whatever the run is doing, so an old file means that the run is gone.
//
//   - Readers always see a complete text: it is written beside the file and renamed.
//   - Nothing waits for the disk, and a file that cannot be written does not end a run.
//   - The file is padded beyond its text, so that the last text fits in place when the disk is full.
//   - Its lanes are those of a recent step. The thread requests them every few seconds and does the slow part.
//
// docs/reference/run-directory.md lists the fields.
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
  int64_t hbm_limit = 0;                                        // device memory in total
  nlohmann::json floor;                                         // for one step; null: the machine's speeds are unknown
  double every_s = kLiveEverySeconds;
};

struct LiveEnd {
  std::string state;  // "complete", "stopped", "failed"
  int exit_code = 0;
  std::string message;  // of a failure
};

class LiveFile {
 public:
  // `running` names the actions that the lanes are executing; it may be called from any thread, and empty means idle.
  // The directory is held open, so renaming it does no harm.
  LiveFile(const std::string& run_dir, LiveAbout about, std::function<std::string()> running);
  ~LiveFile();
  LiveFile(const LiveFile&) = delete;
  LiveFile& operator=(const LiveFile&) = delete;

  // Whether lanes() should be called for the step that begins now.
  bool wants_lanes() const;
  // The actions that the spans point to must outlive this object.
  void lanes(int64_t step, double seconds, std::vector<Span> spans);
  void step(const StepMetrics& metrics, int64_t hbm_used);

  // Writes the last text. May be called from any thread, even while this object's thread hangs.
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
  Lanes fresh_;           // not yet in the file
  nlohmann::json lanes_;  // as in the file; null: none yet
  double lanes_s_ = 0;    // when they arrived
  int64_t step_ = 0, hbm_used_ = 0, hbm_peak_ = 0, host_peak_ = 0;
  LiveEnd end_{.state = "running"};
  bool stopping_ = false;
  std::mutex writing_;  // one writer at a time
  std::thread thread_;  // last: it uses everything above
};

// The `lanes` field of the file: {step, seconds, tracks[]{lane, busy_s, spans[][start_s, seconds, action, layer,
// count]}}. Adjacent spans of one kind that are close together are merged.
nlohmann::json live_lanes(int64_t step, double seconds, const std::vector<Span>& spans);

}  // namespace megatrain
