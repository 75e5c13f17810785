// The machine that `megatrain plan` plans for, from the options of that verb.
#pragma once

#include "megatrain/config/arguments.h"
#include "megatrain/train/setup.h"

namespace megatrain {

struct MachineToPlan {
  Machine machine;  // empty for a machine given by --machine
  PlannedMachine planned;
};

// The machine that --machine names, or this one, with the memory of --ram and the disk of --disk. Throws
// Error(bad_config), for this machine also when memory.nvme_path is not a directory that can hold state.
MachineToPlan machine_to_plan(const Arguments& arguments, const TrainConfig& config);

}  // namespace megatrain
