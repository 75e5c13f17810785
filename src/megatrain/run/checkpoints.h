// The checkpoints of a run, RUN/checkpoints/step-N. One is written beside its place, synced and renamed, so that at
// every moment all that have their name are whole; what has to make room for it is removed after that.
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

// Paths of the run's checkpoints by step, oldest first. Throws Error(io) when RUN/checkpoints is there but cannot be
// read.
std::vector<std::pair<int64_t, std::string>> list_checkpoints(const std::string& run_dir);

// What a killed run left in RUN/checkpoints: a complete step-N.partial becomes step-N, what is not complete is removed,
// each with a line. Only for the owner of the run directory.
void recover_checkpoints(const std::string& run_dir);

// The checkpoints of the run that goes on in `run_dir`, of which it is the owner.
class Checkpoints {
 public:
  // The newest `keep` whole ones stay when one is saved.
  Checkpoints(std::string run_dir, int64_t keep) : run_dir_(std::move(run_dir)), keep_(keep) {}

  // The newest that read_checkpoint finds whole; none: the run has no checkpoint. Of newer ones that are damaged there
  // is a warning each. Throws Error(corrupt_checkpoint) when all are damaged.
  std::optional<Checkpoint> newest();

  // Restores the newest whole one, and says so when newer ones are damaged, of which none is removed.
  Checkpoint restore_newest(std::vector<LayerRecord>& records, int threads);

  // Whole and durable when this returns; then older ones go. A step that is saved already, or was resumed from, is not
  // saved again.
  bool saved(int64_t step) const { return saved_step_ == step; }
  // The last one that was saved or restored; none: there is nothing to go on from. Any thread may ask.
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
  std::set<std::string> damaged_;  // found so by restore_newest()
};

}  // namespace megatrain
