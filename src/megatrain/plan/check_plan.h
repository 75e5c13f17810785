// Whether a plan is valid for a workload, and whether it fits the budgets.
#pragma once

#include <cstdint>
#include <optional>

#include "megatrain/plan/budgets.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

// The sizes that reveal a plan made for another model, checked before its fields are read.
struct PlanSizes {
  int64_t experts_per_record, phases, records;
};
void check_sizes(const Workload& workload, const PlanSizes& sizes);

// Throws Error(bad_config) naming the field that is wrong for this workload.
void check_plan(const Workload& workload, const Plan& plan);
// Throws Error(cannot_fit) when the plan needs more memory than the budgets allow. If it lacks host memory,
// `least_disk_bytes` is the disk space with which some plan would fit; nullopt: no amount of disk helps.
void check_fit(const Workload& workload, const Plan& plan, const Budgets& budgets,
               std::optional<int64_t> least_disk_bytes = {});

}  // namespace megatrain
