// The machine that a run is planned for.
#pragma once

#include <cstdint>

#include "megatrain/train/setup.h"

namespace megatrain {

Site site_here(const Machine& machine, int64_t threads);

// A machine that need not be there, with the memory that its profile says.
Site site_of(const MachineProfile& machine);

// The budget that a host with `bytes` of memory leaves a run: less the kernel's own share and the margin that is left
// free on any machine.
int64_t host_budget(int64_t bytes);

// What a run may take of so much free disk.
int64_t disk_budget(int64_t bytes);

// The scratch of a CUDA device's ops where there is none to be asked: attention's backward has the most, the pairs of
// positions of as many heads as share a key head (ops/cuda/attention_cudnn.cc).
int64_t cuda_scratch_bound(const OpsShape& shape);

// What the CPU or the GPU of this machine does: as measured, else from data sheets.
MachineProfile machine_profile(const Device& device);

// The profile with the rates of whole layers and of attention that its tables give for the calls of this run. Without
// tables, itself.
MachineProfile profile_for(const MachineProfile& machine, const TrainConfig& config, const ModelConfig& model,
                           const RunIdentity& identity);

}  // namespace megatrain
