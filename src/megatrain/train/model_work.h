// A model as the planner sees it: its records and phases in elements, bytes and flops.
#pragma once

#include "megatrain/model/model.h"
#include "megatrain/model/step_notes.h"
#include "megatrain/plan/workload.h"

namespace megatrain {

// Everything in a workload that follows from the model; `shape` is that of one micro-batch. Costs come from the calls
// that the phases themselves make (ops/op_notes.h).
Workload model_work(const Model& model, const NotesShape& shape);

}  // namespace megatrain
