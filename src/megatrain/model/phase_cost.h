// What a phase costs, from the notes of its own calls.
#pragma once

#include <array>
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
  CallCost backward;                               // when everything is kept
  std::array<CallCost, kKeeps.size()> recomputed;  // by what is kept: what backward adds to that
  std::array<CallCost, kKeeps.size()> spared;      // by what is kept: what a forward that runs again leaves out
  struct Part {
    CallCost forward, backward;
  };
  std::vector<Part> parts;  // of forward and backward
};

PhaseCost phase_cost(const Phase& phase, const NotesShape& shape);
CallCost head_cost(const Model& model, const NotesShape& shape);  // forward and backward

}  // namespace megatrain
