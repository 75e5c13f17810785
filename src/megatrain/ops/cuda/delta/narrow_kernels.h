// The launches of segment_kernels.h for bf16 with heads of 128 (narrow.cuh). They share scratch only with each other.
#pragma once

#include <cuda_runtime_api.h>

namespace megatrain {

struct DeltaKernelArgs;

// Whether these kernels take the segments of such a call. The caller sees to it that its tensors are bf16, and that
// those written begin their rows at multiples of 16 bytes.
bool delta_is_narrow(const DeltaKernelArgs& args);

void launch_narrow_prepare(const DeltaKernelArgs& args, cudaStream_t stream);
void launch_narrow_scan(const DeltaKernelArgs& args, bool keep, cudaStream_t stream);
void launch_narrow_scan_back(const DeltaKernelArgs& args, cudaStream_t stream);
void launch_narrow_output(const DeltaKernelArgs& args, cudaStream_t stream);
void launch_narrow_output_back(const DeltaKernelArgs& args, cudaStream_t stream);
void launch_narrow_gradient(const DeltaKernelArgs& args, cudaStream_t stream);
void launch_narrow_key_gradient(const DeltaKernelArgs& args, cudaStream_t stream);

}  // namespace megatrain
