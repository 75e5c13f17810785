// A model in training: its records, its engine, and the step. It does not touch files.
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
#include "megatrain/model/layers/model_config.h"
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
  std::optional<RouterFigures> router;  // only for a training step of an MoE model
  double seconds = 0;                   // since the previous step's report, without evaluations in between
  double paused_s = 0;                  // the part of `seconds` spent on other work before the step was issued
  std::string paused_for = {};          // "the checkpoint"
  LaneSeconds lanes;
  Stall stall;
  int64_t h2d_bytes = 0, d2h_bytes = 0, disk_read_bytes = 0, disk_write_bytes = 0;

  double own_seconds() const { return seconds - paused_s; }
  std::string bound_by() const;  // the name of the lane that bounds the step itself, without any pause before it
  // Records what the caller did between the previous step and this one, while the compute lane was idle.
  void add_pause(double pause_s, const std::string& what);
};

class Trainer {
 public:
  // Allocates everything a step needs. Records are zero until they are filled.
  Trainer(Machine& machine, Model model, const OpsShape& ops_shape, const Workload& workload, const Plan& plan,
          int update_threads);
  // For the configuration's model; `stored` must be the same as in the make_workload() call.
  Trainer(Machine& machine, const ModelConfig& model, const RunIdentity& identity, const TensorTypes& stored,
          const OpsShape& ops_shape, const Workload& workload, const Plan& plan, int update_threads);

  std::vector<LayerRecord>& records() { return records_; }
  Updater& updater() { return updater_; }
  const Pipeline& pipeline() const { return *training_; }
  const DiskTier& disk() const { return disk_; }

  // One optimizer step. Returns when loss and norm are known; updates continue into the next step. Throws NonFiniteLoss
  // if the loss or the norm is not finite; with clipping the state is then unchanged. Throws Error(non_finite) if an
  // earlier update made a weight or a moment infinite or NaN.
  StepReport step(const Batch& batch, const OptimStep& optim);

  // Records the timelines of the following steps; nullptr stops it.
  void trace_into(Trace* trace) { trace_ = trace; }

  // From now on, detects a step, an evaluation or a drain that hangs.
  void watch(const StallLimits& limits, std::function<void(const std::string&)> end);

  // What the lanes are doing; empty: nothing is watched or running. May be called from any thread.
  std::string running() { return watch_ ? watch_->running() : ""; }

  // Computes only the losses; the state does not change. Throws NonFiniteLoss.
  StepReport evaluate(const Batch& batch);

  // Waits until every update is done, so that all state is at the same step. Rethrows any exception of a lane.
  void drain();

  // Drains. Returns device memory that no lane uses, and that the caller may use until the next step or evaluation. It
  // has at least Workload::generation_bytes, and is empty if that is 0.
  std::span<std::byte> lend();

  // Drains. Throws Error(non_finite), naming step, layer and tensor, if the last updates were incomplete or made a
  // weight or a moment infinite or NaN. Such a state must not be saved.
  void settle();

  // Drains, then calls look(record, gradient) for every record that the device updates, with the last step's gradient
  // as the optimizer saw it. The updater's observer sees the gradients of the other records.
  void device_gradients(const Updater::Observer& look);

 private:
  StepReport run(Pipeline& pipeline, const Batch& batch, const OptimStep& optim);
  std::unique_ptr<StallWatch::Watching> watching(const Pipeline& pipeline);
  std::vector<DocumentAt> documents_with_bad_losses(const Batch& batch);
  [[noreturn]] void fail_not_finite(const NotFinite& update);

  Machine& machine_;
  Workload workload_;
  Model model_;
  DiskTier disk_;  // before everything large, so that a disk that is too full is refused first
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
  int64_t last_step_ = 0;   // number of the last issued step
};

}  // namespace megatrain
