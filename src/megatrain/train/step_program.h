// Connects the engine to the model: lays out a batch for the device, runs the phases that the pipeline calls for,
// gathers rows of lookup tables, and feeds the updater.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "megatrain/data/batch.h"
#include "megatrain/engine/pipeline.h"
#include "megatrain/model/model.h"
#include "megatrain/model/unpacking.h"
#include "megatrain/optim/updater.h"

namespace megatrain {

// Device bytes of a step's ids, labels, positions, documents, segments and tables of trained rows of single tokens.
int64_t input_bytes(const Model& model, int64_t micro_batches, int64_t touched_rows);

// Adjacent parts of a record's gradient (ops/gradient.h) that have the same size.
struct PartRun {
  int64_t first = 0;  // part
  int64_t parts = 1;
  int64_t begin = 0;     // element
  int64_t elements = 0;  // in all of them
};

struct OptimStep {
  AdamWStep adamw;  // clip_factor is still 1; t = 0: nothing is updated
  double clip = 0;  // 0: no clipping
};

class StepProgram : public StepHandler {
 public:
  // All arguments must outlive the program. `staged` holds a step's inputs on the host. The program accesses all other
  // memory, records included, only through the operands that an action declares.
  StepProgram(const Model& model, Ops& ops, const Workload& workload, const Plan& plan, Updater& updater,
              int32_t* staged);

  // Fills the staging buffers for the next step to be issued. Consecutive values of `sequence` use two sets of host
  // tables in turn, so that the previous step may still be updating.
  StepBytes prepare(const Batch& batch, int64_t sequence, const OptimStep& optim);

  void compute(const Action& action, const Operands& operands, Stream& stream) override;
  void gather(const Action& action, const Operands& operands, int64_t sequence) override;
  void update(const Action& action, const Operands& operands, int64_t sequence) override;

  // Sorted distinct token ids of a step.
  const std::vector<int32_t>& touched(int64_t sequence) { return step_of(sequence).touched; }

 private:
  struct Step {
    std::vector<int32_t> touched;  // sorted distinct token ids
    OptimStep optim;
  };
  // Facts about a staged micro-batch that the host needs.
  struct Staged {
    int64_t tokens = 0;  // at most those of the plan
    int64_t documents = 0;
    int64_t longest = 0;
    bool uniform = false;
    int64_t segments = 0;
    int64_t token_segments = 0;
  };

  void forward(const Action& action, const Operands& operands, Stream& stream);
  void recompute(const Action& action, const Operands& operands, Stream& stream);
  void balance_experts(const Operands& operands, Stream& stream);
  void backward(const Action& action, const Operands& operands, Stream& stream);
  void merge_rows(const Action& action, const Operands& operands, Stream& stream);
  void finish_gradient(const Action& action, const Operands& operands, Stream& stream);
  void finish_losses(const Operands& operands, Stream& stream);
  void update_on_device(const Action& action, const Operands& operands, Stream& stream);
  void merge_token_rows(const Action& action, const Operands& operands, Stream& stream);
  bool has_second_sum(const Action& action, int64_t record) const;
  float* sum_of(const Action& action, const Operands& operands, int64_t nth, int64_t record, Stream& stream);
  std::vector<float*> sums_of(const Action& action, const Operands& operands, Stream& stream);  // nullptr: frozen
  RouterSlopes router_slopes(const Operands& operands) const;
  std::optional<StepRandom> step_random(int64_t micro_batch) const;
  double routed() const;
  Phase::Backward backward_args(const Action& action, const Operands& operands, std::span<std::byte* const> weights,
                                std::span<float* const> sums, Stream& stream) const;
  View looked_up_rows(const Action& action, const Operands& operands) const;  // Phase::Forward::rows
  View row_gradients(const Action& action, const Operands& operands) const;
  LossViews losses_of(const Action& action, const Operands& operands, Stream& stream) const;
  SharedViews shared_of(const Action& action, const Operands& operands, Stream& stream) const;
  // (T, width of the phase's input)
  View activation(const Action& action, const Operands& operands, Operand operand, int64_t phase) const;
  int64_t tokens_of(const Action& action) const {
    return micro_batches_[static_cast<size_t>(action.micro_batch)].tokens;
  }
  MicroBatchView micro_batch(const Action& action, const Operands& operands) const;
  TokenRowTables token_rows(const Action& action, const Operands& operands) const;
  void stage_micro_batch(int64_t m, const MicroBatch& micro, const std::vector<int32_t>& touched);
  int64_t stage_token_rows(const MicroBatch& micro, int32_t* tables);
  void stage_token_ids();
  // Offsets in words into the inputs.
  int64_t micro_batch_at(int64_t m) const;
  int64_t row_tables_at() const;
  int64_t token_ids_at() const;
  Step& step_of(int64_t sequence) { return steps_[static_cast<size_t>(sequence % 2)]; }

  const Model& model_;
  Ops& ops_;
  const Workload& workload_;
  std::vector<LayerLayout> layouts_;  // indexed by record
  Updater& updater_;
  std::vector<std::vector<PartRun>> part_runs_;  // indexed by record
  std::vector<Unpacking> unpacking_;             // indexed by record
  std::vector<Model::NumberedPhase> phases_;     // indexed by phase number
  int64_t first_trained_;                        // phase
  std::vector<bool> rows_come_;  // indexed by record: if it is a table, the rows that a step touches are fetched
  int32_t* staged_;
  std::array<Step, 2> steps_;
  std::vector<Staged> micro_batches_;   // of the step being issued
  std::vector<int32_t> row_of_id_;      // (V) compact row of a touched id
  std::vector<int32_t> slot_of_id_;     // (V) trained row of an id in the embedding, or -1; empty: there are none
  std::vector<int32_t> segment_count_;  // scratch for staging
  int64_t rows_ = 0;
  int64_t counted_ = 0;  // tokens of the step being issued that count for the router losses
  float loss_scale_ = 0;
  OptimStep optim_;  // of the step being issued
};

}  // namespace megatrain
