// The launches of the recurrence's kernels for one segment, in the order of their use.
#pragma once

#include <cuda_runtime_api.h>

#include "megatrain/tensor/dtype.h"

namespace megatrain {

struct SsdKernelArgs;

// states.cu: what each chunk adds to the state, and what it keeps of it. In backward what each chunk's outputs add to
// the gradient of the state before it, in grad_states.
void launch_ssd_states(const SsdKernelArgs& args, DType dtype, cudaStream_t stream);
void launch_ssd_states_back(const SsdKernelArgs& args, DType dtype, cudaStream_t stream);

// states.cu: from chunk to chunk. The first replaces what chunks add by the state before each, the second by the
// gradient of the state behind each, from the last chunk to the first.
void launch_ssd_scan(const SsdKernelArgs& args, cudaStream_t stream);
void launch_ssd_scan_back(const SsdKernelArgs& args, cudaStream_t stream);

// output.cu: the rows of out.
void launch_ssd_output(const SsdKernelArgs& args, DType dtype, cudaStream_t stream);

// gradient.cu: gradients of x, step and g, and by head those of the pairs. Then those of b and c.
void launch_ssd_gradient(const SsdKernelArgs& args, DType dtype, cudaStream_t stream);
void launch_ssd_group_gradient(const SsdKernelArgs& args, DType dtype, cudaStream_t stream);

}  // namespace megatrain
