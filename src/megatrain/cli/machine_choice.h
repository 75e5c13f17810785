// The machine that the options of a verb name.
#pragma once

#include "megatrain/advice/machine_to_plan.h"
#include "megatrain/config/arguments.h"

namespace megatrain {

inline MachineChoice machine_choice(const Arguments& arguments) {
  return {.name = arguments.option("--machine"), .ram = arguments.option("--ram"), .disk = arguments.option("--disk")};
}

}  // namespace megatrain
