// Marks functions that the host and CUDA kernels share, so that they are written once. They are always inlined. Files
// compiled for one instruction set include them, and an out-of-line copy from such a file must never be linked into
// another.
#pragma once

#if defined(__CUDACC__)
#define MEGATRAIN_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define MEGATRAIN_HOST_DEVICE inline __attribute__((always_inline))
#endif
