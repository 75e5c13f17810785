// Whether this build contains machine code for a GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace megatrain {

// cudaSuccess if kernels of this build can be loaded on the current device.
cudaError_t probe_kernels();

}  // namespace megatrain
