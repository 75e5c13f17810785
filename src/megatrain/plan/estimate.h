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

// Seconds of a step by what they are for, each action by itself: sums over the schedule.
struct StepParts {
  // Grow with the tokens of a step.
  double forward_s = 0;   // of the layers
  double backward_s = 0;  // with the head, and with all that is computed again
  // Do not.
  double weights_s = 0;  // layers' weights that the forward passes fetch
  // Gradients that leave in backward, and those that waited on the device and leave once the norm is known. An
  // embedding's that is updated row by row grow with the tokens and are not counted, here and in update_s.
  double gradients_s = 0, collected_s = 0;
  double update_s = 0;  // of the host
};
StepParts step_parts(const Workload& workload, const Plan& plan, const MachineProfile& machine);

// Of attention in one step, what is computed again included.
double attention_flops(const Workload& workload, const Plan& plan);

}  // namespace megatrain
