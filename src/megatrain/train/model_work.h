// A model as the plan sees it: its records and phases in elements, bytes and flops.
#pragma once

#include "megatrain/model/model.h"
#include "megatrain/model/step_notes.h"
#include "megatrain/plan/workload.h"

namespace megatrain {

// All of a workload that follows from the model; `shape` is that of one micro-batch. Costs come from the notes of the
// phases' own calls.
Workload model_work(const Model& model, const NotesShape& shape);

}  // namespace megatrain
