// Whether a run fits a machine, that is, whether the planner finds a plan; and the figures that follow from that plan.
#pragma once

#include <optional>

#include "megatrain/machine/machine_profile.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/outlook.h"
#include "megatrain/plan/plan.h"
#include "megatrain/plan/workload.h"

namespace megatrain {

// A configuration on a given machine, ready to be planned.
struct PlanInputs {
  Workload workload;
  Budgets budgets;
  MachineProfile profile;  // with speeds for the op calls of this run
};

struct Fit {
  Plan plan;
  Outlook outlook;
  MemoryNeed need;
};
// The planner's plan, or nullopt if none fits.
std::optional<Fit> fit(const PlanInputs& inputs);

}  // namespace megatrain
