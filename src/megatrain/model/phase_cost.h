// The cost of a phase, derived from the notes of its op calls.
#pragma once

#include <vector>

#include "megatrain/model/layers/layer.h"
#include "megatrain/model/step_notes.h"

namespace megatrain {

struct CallCost {
  double flops = 0;       // of matmuls and attention
  double attention = 0;   // flops of attention only
  double recurrence = 0;  // flops within the chunks of recurrences, which `flops` does not have
  double bytes = 0;       // moved by all other calls, which are memory-bound; each operand counted once
};

// For one micro-batch.
struct PhaseCost {
  CallCost forward;
  CallCost backward;  // if everything is kept
  struct Level {
    CallCost recomputed;  // the additional cost of backward at this level
    CallCost spared;      // the cost that a repeated forward saves at this level
  };
  std::vector<Level> levels;  // in the order of Phase::keep_levels()
  struct Part {
    CallCost forward, backward;
  };
  std::vector<Part> parts;  // in the order of Phase::parts()
};

PhaseCost phase_cost(const Phase& phase, const NotesShape& shape);
CallCost head_cost(const Model& model, const NotesShape& shape);  // forward and backward

}  // namespace megatrain
