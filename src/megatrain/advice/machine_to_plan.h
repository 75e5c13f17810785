// The machine that a plan is for.
#pragma once

#include <optional>
#include <string>

#include "megatrain/train/setup.h"

namespace megatrain {

// Which machine; sizes as people write them. Empty: this one, what it has.
struct MachineChoice {
  std::optional<std::string> name;  // a known machine or a profile's file
  std::optional<std::string> ram, disk;
};

struct MachineToPlan {
  Machine machine;  // empty for a machine that was named
  PlannedMachine planned;
};

// Throws Error(bad_config) with the names of `plan`'s options, for this machine also when memory.nvme_path is not a
// directory that can hold state.
MachineToPlan machine_to_plan(const MachineChoice& choice, const TrainConfig& config);

}  // namespace megatrain
