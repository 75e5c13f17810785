// The machine that a run is planned for.
#pragma once

#include <cstdint>

#include "megatrain/train/setup.h"

namespace megatrain {

PlannedMachine this_machine(const Machine& machine, int64_t threads);

// A machine that need not be this one, with the memory that its profile states.
PlannedMachine machine_from_profile(const MachineProfile& machine);

// The budget for a run on a host with `bytes` of memory: all but the kernel's own share and the margin that stays free
// on every machine.
int64_t host_budget(int64_t bytes);

// The share of `bytes` of free disk space that a run may use.
int64_t disk_budget(int64_t bytes);

// An upper bound on the scratch of the CUDA ops if there is no GPU to query. Attention's backward needs the most: all
// pairs of positions, for all heads that share one key head (ops/cuda/attention/cudnn.cc).
int64_t cuda_scratch_bound(const OpsShape& shape);

// The speeds of this machine's CPU or GPU: measured, or else from data sheets.
MachineProfile machine_profile(const Device& device);

// The profile, with the rates of whole layers, of attention and of recurrences for the op calls of this run. The first
// two come from the profile's tables. If it has no tables, they are typical shares of its overall rate, as that of
// recurrences always is.
MachineProfile profile_for(const MachineProfile& machine, const TrainConfig& config, const ModelConfig& model,
                           const RunIdentity& identity);

}  // namespace megatrain
