// A model in training: its records, its engine, and the step. Knows nothing of files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatrain/data/batch.h"
#include "megatrain/engine/pipeline.h"
#include "megatrain/engine/stall_watch.h"
#include "megatrain/model/config.h"
#include "megatrain/optim/updater.h"
#include "megatrain/train/non_finite.h"
#include "megatrain/train/router_figures.h"
#include "megatrain/train/setup.h"
#include "megatrain/train/step_program.h"

namespace megatrain {

struct StepReport {
  double loss = 0;       // mean over the step's trained tokens
  double grad_norm = 0;  // before clipping
  double clip_factor = 1;
  int64_t tokens = 0;
  int64_t trained_tokens = 0;
  int64_t correct = 0;                  // trained tokens whose label had the largest logit
  std::optional<RouterFigures> router;  // of a training step of a model with experts
  double seconds = 0;                   // since the step before was reported, evaluations in between left out
  double paused_s = 0;                  // of these, before the step was issued, for something else
  std::string paused_for = {};          // "the checkpoint"
  LaneSeconds lanes;
  Stall stall;
  int64_t h2d_bytes = 0, d2h_bytes = 0, disk_read_bytes = 0, disk_write_bytes = 0;

  double own_seconds() const { return seconds - paused_s; }
  std::string bound_by() const;  // a lane's name; what the step itself is bound by, whatever came before it
  // What the caller did between the step before and this one, where the compute lane had nothing to do.
  void add_pause(double pause_s, const std::string& what);
};

class Trainer {
 public:
  // Allocates everything a step needs. Records are zero until they are filled.
  Trainer(Machine& machine, Model model, const OpsShape& ops_shape, const Workload& workload, const Plan& plan,
          int update_threads);
  // Of the configuration's model; `stored` is what the workload was made with.
  Trainer(Machine& machine, const ModelConfig& model, const RunIdentity& identity, const TensorTypes& stored,
          const OpsShape& ops_shape, const Workload& workload, const Plan& plan, int update_threads);

  std::vector<LayerRecord>& records() { return records_; }
  Updater& updater() { return updater_; }
  const Pipeline& pipeline() const { return *training_; }
  const DiskTier& disk() const { return disk_; }

  // One optimizer step. Returns when loss and norm are known; updates run on into the next step. Throws NonFiniteLoss
  // when the loss or the norm is not finite (with clipping the state is then untouched), and Error(non_finite) when an
  // update before it made a weight or a moment infinite or NaN.
  StepReport step(const Batch& batch, const OptimStep& optim);

  // Writes the next steps' lanes down; nullptr stops it.
  void trace_into(Trace* trace) { trace_ = trace; }

  // From now on a step, an evaluation or a drain that hangs is told from one that works.
  void watch(const StallLimits& limits, std::function<void(const std::string&)> end);

  // What the lanes are in, from any thread; empty: nothing is watched, or runs.
  std::string running() { return watch_ ? watch_->running() : ""; }

  // Losses only; the state does not change. Throws NonFiniteLoss.
  StepReport evaluate(const Batch& batch);

  // (tokens of the step) 1 where the label had the largest logit; 0 elsewhere and where nothing is trained.
  std::vector<int32_t> correct_tokens(const Batch& batch);

  // Until every update is done: the state is then at one version. Throws what a lane threw.
  void drain();

  // Drains. Device memory for any use until the next step or evaluation, with no lane at work on it: at least
  // Workload::generation_bytes; empty where these are 0.
  std::span<std::byte> lend();

  // Drains. Throws Error(non_finite), which names step, layer and tensor, when the last updates tore the state or made
  // a weight or a moment infinite or NaN: it must not be saved.
  void settle();

  // Calls look(record, gradient) with the last step's gradient of every record that is updated on the device, as the
  // optimizer saw it; the updater's observer sees the others. Drains first.
  void device_gradients(const Updater::Observer& look);

 private:
  StepReport run(Pipeline& pipeline, const Batch& batch, const OptimStep& optim);
  std::unique_ptr<StallWatch::Watching> watching(const Pipeline& pipeline);
  std::vector<DocumentAt> documents_with_bad_losses(const Batch& batch);
  [[noreturn]] void fail_not_finite(const NotFinite& update);

  Machine& machine_;
  Workload workload_;
  Model model_;
  DiskTier disk_;  // before all that is large: a disk that is too full is refused first
  std::vector<LayerRecord> records_;
  EngineMemory memory_;
  Updater updater_;
  StepProgram program_;
  Plan plan_;
  Lanes lanes_;  // before the pipelines, which issue to it
  std::unique_ptr<Pipeline> training_, evaluation_;
  std::unique_ptr<StallWatch> watch_;
  Trace* trace_ = nullptr;
  double last_report_s_ = 0;
  double evaluated_s_ = 0;  // since the last step
  int64_t last_step_ = 0;   // the number of the last one that was issued
};

}  // namespace megatrain
