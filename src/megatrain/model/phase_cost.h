// What a phase costs, from the notes of its own calls.
#pragma once

#include <vector>

#include "megatrain/model/layer.h"
#include "megatrain/model/step_notes.h"

namespace megatrain {

struct CallCost {
  double flops = 0;      // of matrix products and attention
  double attention = 0;  // flops of attention alone
  double bytes = 0;      // moved by all other calls, which memory bounds; every operand once
};

// Of one micro-batch.
struct PhaseCost {
  CallCost forward;
  CallCost backward;  // when everything is kept
  struct Level {
    CallCost recomputed;  // what backward adds to that
    CallCost spared;      // what a forward that runs again leaves out
  };
  std::vector<Level> levels;  // as Phase::keep_levels() has them
  struct Part {
    CallCost forward, backward;
  };
  std::vector<Part> parts;  // of forward and backward
};

PhaseCost phase_cost(const Phase& phase, const NotesShape& shape);
CallCost head_cost(const Model& model, const NotesShape& shape);  // forward and backward

}  // namespace megatrain
