// Machines by name, from data sheets, to plan for a GPU that is not present. None of them is measured.
#pragma once

#include <string>
#include <vector>

#include "megatrain/machine/machine_profile.h"

namespace megatrain {

const std::vector<MachineProfile>& named_machines();

// By its name in any case, with or without makers, dashes and memory ("RTX 4090", "rtx-pro-6000"). Throws
// Error(bad_config) with the nearest name and all known ones.
const MachineProfile& named_machine(const std::string& name);

// The machine with a GPU of this name ("NVIDIA GeForce RTX 4090"); for an unknown GPU, the profile's defaults.
MachineProfile machine_for_device(const std::string& device_name);

std::string machine_names();  // "a100-40, a100-80, ...", for help and errors

}  // namespace megatrain
