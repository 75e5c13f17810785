// The checkpoints of a run, RUN/checkpoints/step-N. Each is written beside its place, synced and renamed, so everything
// named step-N is complete at any moment. Older checkpoints are removed only after that.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/run/checkpoint.h"

namespace megatrain {

// Steps and paths of the run's checkpoints, oldest first. Throws Error(io) when RUN/checkpoints exists but cannot be
// read.
std::vector<std::pair<int64_t, std::string>> list_checkpoints(const std::string& run_dir);

// Cleans up RUN/checkpoints after a killed run: renames a complete step-N.partial to step-N and removes incomplete
// ones, logging each. Only the owner of the run directory may call it.
void recover_checkpoints(const std::string& run_dir);

// The checkpoints of the run that continues in `run_dir` and owns it.
class Checkpoints {
 public:
  // Saving a checkpoint keeps the newest `keep` complete ones.
  Checkpoints(std::string run_dir, int64_t keep) : run_dir_(std::move(run_dir)), keep_(keep) {}

  // The newest checkpoint that read_checkpoint accepts; nothing if the run has none. Warns of each newer one that is
  // damaged. Throws Error(corrupt_checkpoint) when all are damaged.
  std::optional<Checkpoint> newest();

  // Restores the newest complete checkpoint. If newer ones are damaged it says so and keeps them.
  Checkpoint restore_newest(std::vector<LayerRecord>& records, int threads);

  // Whether `step` was already saved, or is the one resumed from; save() then does nothing. Otherwise save() returns
  // once the checkpoint is complete and durable and older ones are removed.
  bool saved(int64_t step) const { return saved_step_ == step; }
  // The step last saved or restored; nothing if there is no checkpoint to resume from. Safe from any thread.
  std::optional<int64_t> last_step() const {
    const int64_t step = saved_step_;
    return step == kNone ? std::nullopt : std::optional(step);
  }
  void save(int64_t step, const nlohmann::json& identity, const TensorTypes& types,
            const std::vector<LayerRecord>& records, int threads);

 private:
  void rotate();

  std::string run_dir_;
  int64_t keep_;
  static constexpr int64_t kNone = -1;
  std::atomic<int64_t> saved_step_{kNone};
  std::set<std::string> damaged_;  // as found by restore_newest()
};

}  // namespace megatrain
