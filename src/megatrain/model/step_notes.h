// The calls one micro-batch makes, by running a model's phases against OpNotes: nothing lists them a second time.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/model/config.h"
#include "megatrain/model/freeze.h"
#include "megatrain/model/model.h"
#include "megatrain/ops/op_note.h"

namespace megatrain {

struct NotesShape {
  DType dtype = DType::bf16;
  int64_t sequences = 1;  // of a micro-batch
  int64_t seq_len = 0;
  int64_t mlp_chunk = 0;
  int64_t head_chunk = 0;
  bool accumulate = true;  // gradients are added to an earlier micro-batch's
};

// Of a phase's parts.
struct PhaseNotes {
  std::vector<std::vector<OpNote>> forward, backward;
  std::vector<OpNote> recompute;  // before the backward of several parts
  std::vector<OpNote> again;      // of the first part's forward where it has run before

  // Of all parts, in the order they run.
  std::vector<OpNote> all_forward() const;
  std::vector<OpNote> all_backward() const;
};
PhaseNotes phase_notes(const Phase& phase, const NotesShape& shape, Keep keep);

std::vector<OpNote> head_notes(const Model& model, const NotesShape& shape);  // forward and backward

// Of one micro-batch through all layers and the head.
struct StepNotes {
  std::vector<OpNote> forward;   // of the layers
  std::vector<OpNote> head;      // forward and backward
  std::vector<OpNote> backward;  // of the layers at or above something trained, every one recomputed

  std::vector<OpNote> recomputing() const;  // all of them: forward, head, backward
  std::vector<OpNote> keeping() const;      // the same without what backward computes again
};

StepNotes step_notes(const ModelConfig& model, const NotesShape& shape, const FreezeRules& rules = {});

}  // namespace megatrain
