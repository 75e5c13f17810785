// How long a step of a plan takes on a machine: walks the schedule with a cost for each action.
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
// Walks three steps of the schedule and reports the third. To save time, the micro-batches of a sweep are grouped into
// fewer actions. If no phase inputs or kept outputs cross the link, grouping does not change the result and is always
// done. Otherwise it is done only if there are many micro-batches. If there are many sweeps, only the first few are
// walked.
Estimate estimate(const Workload& workload, const Plan& plan, const MachineProfile& machine);
// The same, with the micro-batches of a sweep grouped into at most `groups` actions.
Estimate estimate(const Workload& workload, const Plan& plan, const MachineProfile& machine, int64_t groups);

// A lower bound on the estimated step time of the plan. Cheap: builds no schedule.
double least_seconds(const Workload& workload, const Plan& plan, const MachineProfile& machine);

// The lane that bounds a step: compute, unless compute stalls and another lane is busy enough to be the cause. `others`
// maps each other lane to its busy seconds.
std::string bounding_lane(double step_s, double compute_s, const std::map<std::string, double>& others);

// Weight bytes copied to the device in one step.
int64_t fetched_weight_bytes(const Workload& workload, const Plan& plan);

// Seconds of a step by purpose. Each is a sum over the schedule's actions, each action costed as if it ran alone.
struct StepParts {
  // These grow with the tokens of a step:
  double forward_s = 0;   // layers only
  double backward_s = 0;  // includes the head and all recomputation
  // These do not:
  double weights_s = 0;  // fetching the layers' weights in the forward passes
  // gradients_s: gradients that leave the device during backward. collected_s: gradients that waited on the device and
  // leave once the norm is known. These two and update_s leave out an embedding that is updated row by row, since its
  // gradients grow with the tokens.
  double gradients_s = 0, collected_s = 0;
  double update_s = 0;  // on the host
};
StepParts step_parts(const Workload& workload, const Plan& plan, const MachineProfile& machine);

// Attention flops of one step, recomputation included.
double attention_flops(const Workload& workload, const Plan& plan);

}  // namespace megatrain
