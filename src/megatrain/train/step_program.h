// Joins engine and model: lays a batch out for the device, runs the model's phases the pipeline calls for, gathers
// embedding rows, and feeds the updater.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "megatrain/data/batch.h"
#include "megatrain/engine/pipeline.h"
#include "megatrain/model/model.h"
#include "megatrain/optim/updater.h"

namespace megatrain {

// What a step's ids, labels, positions, documents and segments take on the device.
int64_t input_bytes(int64_t micro_batches, int64_t micro_tokens, int64_t touched_rows);

// Parts of a record's gradient (ops/gradient.h) that follow each other and are equally large.
struct PartRun {
  int64_t first = 0;  // part
  int64_t parts = 1;
  int64_t begin = 0;     // element
  int64_t elements = 0;  // of all of them
};

struct OptimStep {
  AdamWStep adamw;  // clip_factor still 1
  double clip = 0;  // 0: no clipping
};

class StepProgram : public StepHandler {
 public:
  // The model outlives it.
  StepProgram(const Model& model, Ops& ops, EngineMemory& memory, std::vector<LayerRecord>& records, Updater& updater);

  // Fills the staging buffers for the next step to be issued; `sequence` alternates two sets of host tables, so that
  // the step before may still be updating.
  StepBytes prepare(const Batch& batch, int64_t sequence, const OptimStep& optim);

  void compute(const Action& action, Stream& stream) override;
  void gather(const Action& action, int64_t sequence) override;
  void update(const Action& action, int64_t sequence) override;

  // Sorted distinct token ids of a step.
  const std::vector<int32_t>& touched(int64_t sequence) { return step_of(sequence).touched; }

 private:
  struct Step {
    std::vector<int32_t> touched;  // sorted distinct token ids
    OptimStep optim;
  };
  void embed_forward(const Action& action, Stream& stream);
  void forward(const Action& action, Stream& stream);
  void head(const Action& action, Stream& stream);
  void recompute(const Action& action, Stream& stream);
  void balance_experts(const Action& action, Stream& stream);
  void backward(const Action& action, Stream& stream);
  void embed_backward(const Action& action, Stream& stream);
  void merge_rows(const Action& action, Stream& stream);
  void finish_gradient(const Action& action, Stream& stream);
  void update_on_device(const Action& action, Stream& stream);
  float* sum_of(const Action& action, int64_t nth, int64_t record, Stream& stream);
  std::byte* router_counts_of(const Action& action, Stream& stream) const;
  RouterSlopes router_slopes(const Action& action) const;
  double routed() const;
  std::vector<std::byte*> weights_of(const Action& action) const;
  std::byte* optional(const Action& action, Operand operand) const;
  Phase::Backward backward_args(const Action& action, std::span<std::byte* const> weights,
                                std::span<float* const> sums) const;
  View activation(const Action& action, Operand operand, int64_t phase) const;  // (T, width of the phase's input)
  const MicroBatchView& micro_batch(const Action& action) const {
    return views_[static_cast<size_t>(action.micro_batch)];
  }
  void stage_micro_batch(int64_t m, const MicroBatch& micro, const std::vector<int32_t>& touched);
  int64_t row_tables_at() const;  // words into the inputs
  int64_t squares_of(const Action& action) const;
  Step& step_of(int64_t sequence) { return steps_[static_cast<size_t>(sequence % 2)]; }

  const Model& model_;
  Ops& ops_;
  EngineMemory& memory_;
  std::vector<LayerRecord>& records_;
  Updater& updater_;
  std::vector<std::vector<PartRun>> part_runs_;  // by record
  std::vector<Model::NumberedPhase> phases_;     // of the layers
  bool below_head_is_trained_;
  std::array<Step, 2> steps_;
  std::vector<MicroBatchView> views_;   // of the step being issued
  std::vector<int32_t> row_of_id_;      // (V) compact row of a touched id
  std::vector<int32_t> segment_count_;  // scratch of staging
  int64_t rows_ = 0;
  int64_t counted_ = 0;  // tokens of the step being issued that count for the router's losses
  float loss_scale_ = 0;
  OptimStep optim_;       // of the step being issued
  int64_t sequence_ = 0;  // of the step being issued
};

}  // namespace megatrain
