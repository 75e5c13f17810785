// Machines by name, from data sheets: to plan for a GPU that is not there. None of them is measured.
#pragma once

#include <string>
#include <vector>

#include "megatrain/machine/machine_profile.h"

namespace megatrain {

const std::vector<MachineProfile>& named_machines();

// Throws Error(bad_config) with the names there are.
const MachineProfile& named_machine(const std::string& name);

// The machine whose GPU bears this name ("NVIDIA GeForce RTX 4090"); of a GPU that none has, the profile's defaults.
MachineProfile machine_for_device(const std::string& device_name);

std::string machine_names();  // "a100-40, a100-80, ...", for help and errors

}  // namespace megatrain
