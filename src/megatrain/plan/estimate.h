// How long a step of a plan takes on a machine: the schedule walked with what each action costs.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "megatrain/machine/machine_profile.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

struct Estimate {
  double step_s = 0;
  double compute_s = 0, h2d_s = 0, d2h_s = 0, update_s = 0, disk_read_s = 0, disk_write_s = 0;
  std::string bound_by;
};
// Walks three steps of the schedule and reports the third. Micro-batches of a sweep are taken together where that
// changes nothing: unless inputs or kept outputs of phases cross the link, and then where there are many. Where
// there are many sweeps, the first are walked.
Estimate estimate(const Workload& workload, const Plan& plan, const MachineProfile& machine);
// The same with the micro-batches of a sweep in at most `groups` actions.
Estimate estimate(const Workload& workload, const Plan& plan, const MachineProfile& machine, int64_t groups);

// No step of the plan is estimated to be shorter. Cheap: no schedule is made.
double least_seconds(const Workload& workload, const Plan& plan, const MachineProfile& machine);

// What bounds a step: compute, unless it stalls and another lane is busy enough to be why. Busy seconds by lane.
std::string bounding_lane(double step_s, double compute_s, const std::map<std::string, double>& others);

// Weight bytes that cross to the device in one step.
int64_t fetched_weight_bytes(const Workload& workload, const Plan& plan);

// Of attention in one step, what is computed again included.
double attention_flops(const Workload& workload, const Plan& plan);

}  // namespace megatrain
