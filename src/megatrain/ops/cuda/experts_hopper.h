// Matmuls of mixtures of experts on Hopper, with CUTLASS's grouped kernels (TMA, warp-specialised wgmma) in bf16. A
// group's sizes, pointers and strides are written on the device from the actual row counts, so no call waits for them.
// Each matmul has one tile shape and no split sums, so how experts are grouped into calls changes no bit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "megatrain/ops/experts.h"

namespace megatrain {

// Whether the tensors are bf16 with rows of whole 16-byte packs, as TMA needs.
bool hopper_takes(const ExpertsForward& args);
bool hopper_takes(const ExpertsBackwardInput& args);
bool hopper_takes(const ExpertsBackwardWeight& args);

// Scratch of any of the matmuls over `experts` experts on a GPU with `processors` multiprocessors: arrays by expert,
// then CUTLASS's workspace.
inline constexpr int64_t kHopperAlign = 256;
inline constexpr int64_t kHopperArrays = 8;
inline constexpr int64_t kHopperMostBytes = 16;            // maximum size of an array element
inline constexpr int64_t kHopperProcessorBytes = 8 * 128;  // tensor maps per multiprocessor: five, and room to align
int64_t hopper_scratch_bytes(int64_t experts, int processors);

// experts_hopper_forward.cu, experts_hopper_input.cu, experts_hopper_weight.cu. The last does not write the gradients
// of experts without rows, nor grad_bias.
void launch_hopper(const ExpertsForward& args, void* scratch, int processors, cudaStream_t stream);
void launch_hopper(const ExpertsBackwardInput& args, void* scratch, int processors, cudaStream_t stream);
void launch_hopper(const ExpertsBackwardWeight& args, void* scratch, int processors, cudaStream_t stream);

// experts_hopper_sum.cu: the same for products that are scaled, or added to what is there, as an adapter's are.
void launch_hopper_sum(const ExpertsForward& args, void* scratch, int processors, cudaStream_t stream);
void launch_hopper_sum(const ExpertsBackwardInput& args, void* scratch, int processors, cudaStream_t stream);

}  // namespace megatrain
