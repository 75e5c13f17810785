// Executes a schedule: issues every action to its lane's stream with its waits, does copies itself, and leaves maths to
// the handler. Issuing returns at once; lanes run on their own.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/device/device.h"
#include "megatrain/engine/disk_tier.h"
#include "megatrain/engine/operands.h"
#include "megatrain/plan/schedule.h"
#include "megatrain/engine/trace.h"
#include "megatrain/store/record.h"

namespace megatrain {

// Does the maths that the pipeline calls for; connects engine and model.
class StepHandler {
 public:
  virtual ~StepHandler() = default;
  // Enqueues the work on the stream of the action's lane.
  virtual void compute(const Action& action, const Operands& operands, Stream& stream) = 0;
  // Called on the lane's own thread; `sequence` counts the steps this pipeline has issued.
  virtual void gather(const Action& action, const Operands& operands, int64_t sequence) = 0;
  virtual void update(const Action& action, const Operands& operands, int64_t sequence) = 0;
};

// One stream per lane. h2d, compute, d2h and the visit lanes are device streams; the others are host threads.
class Lanes {
 public:
  explicit Lanes(Device& device);
  Stream& stream(Lane lane) const { return *streams_[static_cast<size_t>(lane)]; }
  HostStream& host(Lane lane) const { return *hosts_[static_cast<size_t>(lane)]; }
  static bool is_host(Lane lane) { return lane == Lane::gather || runs_on(lane); }
  // Actions of these lanes may still run when the step's report arrives, wherever they are in the schedule.
  static bool runs_on(Lane lane) {
    return lane == Lane::collect || lane == Lane::update || lane == Lane::disk_read || lane == Lane::disk_write;
  }
  void drain();          // waits for everything issued; rethrows what a lane threw
  void stop() noexcept;  // the same, but ignores what lanes threw

 private:
  std::array<std::unique_ptr<Stream>, kLanes> owned_;
  std::array<Stream*, kLanes> streams_{};
  std::array<HostStream*, kLanes> hosts_{};
};

struct LaneSeconds {
  std::array<double, kLanes> busy{};
};

// What the step moves, known when it is issued.
struct StepBytes {
  int64_t inputs = 0;  // staged inputs
  int64_t rows = 0;    // distinct token ids
};

// The longest time the compute lane waited within a step, and its cause.
struct Stall {
  double seconds = 0;
  std::string cause;  // "update of layer 3"; empty: there was no stall
};

class Pipeline {
 public:
  Pipeline(Device& device, Lanes& lanes, Schedule schedule, EngineMemory& memory, std::vector<LayerRecord>& records,
           DiskTier& disk, StepHandler& handler);
  ~Pipeline() { lanes_.stop(); }  // issued work refers to the pipeline, also after a lane threw
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  const Schedule& schedule() const { return schedule_; }
  int64_t next_sequence() const { return issued_; }  // of the step that issue() will issue next

  // The staging buffers must be filled. The step before the last must be done, which wait_report() of the last implies.
  void issue(const StepBytes& step);

  // Blocks until the issued step's losses and sums of squares are on the host and the previous step is done. Updates
  // may still run. Rethrows what a lane threw.
  void wait_report();

  // Busy seconds of the issued step's lanes. Those of the update and disk lanes are the previous step's, which ran
  // meanwhile.
  LaneSeconds lane_seconds() const;

  // The same seconds, by action name.
  std::map<std::string, double> action_seconds() const;

  // In the issued step, including the wait for its first action.
  Stall longest_stall() const;

  // When each action ran, on the host's clock; as above, the previous step's on the update and disk lanes.
  // Device::mark_clock() must be called before issue().
  std::vector<Span> spans() const;

  // For a watch on another thread: the number of actions that have ended, which grows as the step proceeds; and the
  // actions that have begun but not ended, by lane.
  int64_t finished_actions() const;
  std::string running_actions() const;

  int64_t h2d_bytes() const { return h2d_bytes_; }  // of the last issued step
  int64_t d2h_bytes() const { return d2h_bytes_; }
  int64_t disk_read_bytes() const { return disk_read_bytes_; }
  int64_t disk_write_bytes() const { return disk_write_bytes_; }

 private:
  struct Marks {
    std::unique_ptr<Event> start, end;
  };
  const Marks* finished_marks(
      size_t action) const;  // of the issued step, or of the previous one for lanes that run on; may be null
  std::string cause_of(size_t action, size_t set) const;
  const Resource* read_after(const Action& action) const;  // what the disk lane reads next
  void read_disk(const Action& action, const Operands& operands, const Resource* next);
  void write_disk(const Action& action, const Operands& operands);
  void perform(const Action& action, Stream& stream, const StepBytes& step);
  void report(const Operands& operands, Stream& stream);
  template <class Copy>
  void visit(const Action& action, const Operands& operands, const Copy& copy);
  void to_device(Stream& stream, void* to, const void* from, int64_t bytes);
  void to_host(Stream& stream, void* to, const void* from, int64_t bytes);

  Device& device_;
  Lanes& lanes_;
  Schedule schedule_;
  EngineMemory& memory_;
  std::vector<LayerRecord>& records_;
  DiskTier& disk_;
  StepHandler& handler_;
  std::array<std::vector<Marks>, 2> marks_;  // steps alternate, so that a wait can reach one step back
  size_t report_ = 0;                        // the report's index; later actions may still run when it arrives
  int64_t issued_ = 0;
  int64_t h2d_bytes_ = 0, d2h_bytes_ = 0, disk_read_bytes_ = 0, disk_write_bytes_ = 0;
};

}  // namespace megatrain
