// Products of mixtures of experts on Hopper: CUTLASS's grouped kernels (TMA, warp-specialised wgmma), bf16. A group's
// sizes, pointers and strides are written on the device from the rows there are, so no call waits for them. One tile
// shape a product and no split sums: how experts are grouped into calls changes no bit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "megatrain/ops/experts.h"

namespace megatrain {

// Whether the tensors are bf16 in rows of whole 16-byte packs, which TMA needs.
bool hopper_takes(const ExpertsForward& args);
bool hopper_takes(const ExpertsBackwardInput& args);
bool hopper_takes(const ExpertsBackwardWeight& args);

// Scratch of any of the products over `experts` experts on a GPU of `processors` multiprocessors: arrays by expert,
// then CUTLASS's workspace.
inline constexpr int64_t kHopperAlign = 256;
inline constexpr int64_t kHopperArrays = 8;
inline constexpr int64_t kHopperMostBytes = 16;            // of an array's element
inline constexpr int64_t kHopperProcessorBytes = 8 * 128;  // tensor maps of a multiprocessor: five, and room to align
int64_t hopper_scratch_bytes(int64_t experts, int processors);

// experts_hopper_forward.cu, experts_hopper_input.cu, experts_hopper_weight.cu. The last leaves the gradients of
// experts without rows alone, and grad_bias.
void launch_hopper(const ExpertsForward& args, void* scratch, int processors, cudaStream_t stream);
void launch_hopper(const ExpertsBackwardInput& args, void* scratch, int processors, cudaStream_t stream);
void launch_hopper(const ExpertsBackwardWeight& args, void* scratch, int processors, cudaStream_t stream);

}  // namespace megatrain
