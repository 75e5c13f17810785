// The plan with the shortest step that fits the budgets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/machine/machine_profile.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

// The plan with the shortest estimated step within the budgets. Throws Error(cannot_fit) before anything is allocated;
// the message says what is needed, what is available and what would fit. `notes` receives one sentence for each
// compromise made to fit.
Plan make_plan(const Workload& workload, const Budgets& budgets, const MachineProfile& machine,
               std::vector<std::string>* notes);

// Whether make_plan() finds a plan. Faster, because plans that fit are not compared.
bool can_fit(const Workload& workload, const Budgets& budgets, const MachineProfile& machine);

}  // namespace megatrain
