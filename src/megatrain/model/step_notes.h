// The op calls of one micro-batch, found by running a model's phases on OpNotes, so that there is no second list to
// maintain.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/model.h"
#include "megatrain/model/trained/train_rules.h"
#include "megatrain/ops/op_note.h"

namespace megatrain {

struct NotesShape {
  DType dtype = DType::bf16;
  int64_t sequences = 1;  // of a micro-batch
  int64_t seq_len = 0;
  int64_t mlp_chunk = 0;
  int64_t head_chunk = 0;
  bool accumulate = true;  // adds to the gradients of an earlier micro-batch
};

// The calls of each part of a phase.
struct PhaseNotes {
  std::vector<std::vector<OpNote>> forward, backward;
  std::vector<OpNote> recompute;  // before the backward, if there are several parts
  std::vector<OpNote> repeated;   // the first part's forward with Forward::repeated

  // All parts, in the order they run.
  std::vector<OpNote> all_forward() const;
  std::vector<OpNote> all_backward() const;
};
PhaseNotes phase_notes(const Phase& phase, const NotesShape& shape, Keep keep);

std::vector<OpNote> head_notes(const Model& model, const NotesShape& shape);  // forward and backward

// The calls of one micro-batch in all layers and the head.
struct StepNotes {
  std::vector<OpNote> forward;   // of the layers
  std::vector<OpNote> head;      // forward and backward
  std::vector<OpNote> backward;  // of the layers at or above a trained tensor, with full recomputation

  std::vector<OpNote> recomputing() const;  // forward, head and backward
  std::vector<OpNote> keeping() const;      // the same without the recomputation in backward
};

StepNotes step_notes(const ModelConfig& model, const NotesShape& shape, const TrainRules& rules = {});

}  // namespace megatrain
