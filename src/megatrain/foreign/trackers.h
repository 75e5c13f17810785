// Keys of other trainers that report a run to a tracker (Weights & Biases, MLflow, trackio). They become `track`.
#pragma once

#include "megatrain/foreign/reader.h"

namespace megatrain {

// report_to, run_name and project of the Hugging Face trainer. Trackers that megatrain does not know are refused in a
// file of ours, and get a warning in one of theirs.
void hf_trackers(ForeignReader& reader);

// use_wandb, wandb_project and the like. As in Axolotl, a project alone enables its tracker.
void axolotl_trackers(ForeignReader& reader);

}  // namespace megatrain
