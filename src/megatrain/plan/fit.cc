#include "megatrain/plan/fit.h"

#include "megatrain/base/error.h"
#include "megatrain/plan/planner.h"

namespace megatrain {

std::optional<Fit> fit(const PlanInputs& p) {
  try {
    const Plan plan = make_plan(p.workload, p.budgets, p.profile, nullptr);
    return Fit{.plan = plan, .outlook = outlook(p.workload, plan, p.profile), .need = memory_need(p.workload, plan)};
  } catch (const Error& error) {
    if (error.code() != ExitCode::cannot_fit) throw;
    return {};
  }
}

}  // namespace megatrain
