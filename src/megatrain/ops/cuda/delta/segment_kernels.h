// The launches of the delta rule's kernels for one segment, in the order of their use.
#pragma once

#include <cuda_runtime_api.h>

#include "megatrain/tensor/dtype.h"

namespace megatrain {

struct DeltaKernelArgs;

// prepare.cu: U (in d) and W, and M unless `inverse` is null.
void launch_delta_prepare(const DeltaKernelArgs& args, DType dtype, cudaStream_t stream);

// scan.cu: from chunk to chunk. The first gives D, the states before the chunks and the one behind the segment;
// without `keep` only the last. The second completes the gradients of D, which it finds in grad_d as they follow from
// the chunk's own outputs, and gives those of the states, from the last chunk to the first.
void launch_delta_scan(const DeltaKernelArgs& args, bool keep, DType dtype, cudaStream_t stream);
void launch_delta_scan_back(const DeltaKernelArgs& args, DType dtype, cudaStream_t stream);

// output.cu: the rows of out, and in backward the part of the gradients of D that the chunk's outputs give.
void launch_delta_output(const DeltaKernelArgs& args, DType dtype, cudaStream_t stream);
void launch_delta_output_back(const DeltaKernelArgs& args, DType dtype, cudaStream_t stream);

// gradient.cu: gradients of v, g, beta, and by value head of the normalised q and k. Then those of q and k.
void launch_delta_gradient(const DeltaKernelArgs& args, DType dtype, cudaStream_t stream);
void launch_delta_key_gradient(const DeltaKernelArgs& args, DType dtype, cudaStream_t stream);

}  // namespace megatrain
