// The launches of Mamba 2's recurrence. Scratch is device memory of ssd_scratch_bytes() (ops/ssd_segments.h).
#pragma once

#include <cuda_runtime_api.h>

#include "megatrain/ops/ssd.h"

namespace megatrain {

// ssd.cu. The gradient of the skip is another launch's (ops/cuda/ssd_skip.cu).
void launch(const SsdForward& args, void* scratch, cudaStream_t stream);
void launch(const SsdBackward& args, void* scratch, cudaStream_t stream);

// cached.cu
void launch(const SsdCached& args, cudaStream_t stream);

}  // namespace megatrain
