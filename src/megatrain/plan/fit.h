// Whether a run fits a machine, by the planner's own plan, and what follows from that plan.
#pragma once

#include <optional>

#include "megatrain/machine/machine_profile.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/outlook.h"
#include "megatrain/plan/plan.h"
#include "megatrain/plan/workload.h"

namespace megatrain {

// A configuration at a site, ready to be planned.
struct Prospect {
  Workload workload;
  Budgets budgets;
  MachineProfile profile;  // for the calls of this run
};

struct Fit {
  Plan plan;
  Outlook outlook;
  MemoryNeed need;
};
// The planner's plan; nothing when none fits.
std::optional<Fit> fit(const Prospect& prospect);

}  // namespace megatrain
