// Functions that the host and CUDA kernels share are written once. They are always inlined: files compiled for one
// instruction set include them, and a copy of such a file's must never be linked into another.
#pragma once

#if defined(__CUDACC__)
#define MEGATRAIN_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define MEGATRAIN_HOST_DEVICE inline __attribute__((always_inline))
#endif
