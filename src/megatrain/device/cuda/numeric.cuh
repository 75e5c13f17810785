// Element access and reductions shared by the kernels. Arithmetic is fp32 whatever the dtype of the elements.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <source_location>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/device/cuda/check.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

using Bf16 = __nv_bfloat16;

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(Bf16 x) { return __bfloat162float(x); }

template <class T>
__device__ T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__device__ inline Bf16 narrow<Bf16>(float x) {
  return __float2bfloat16_rn(x);
}

// kCount elements moved in accesses of up to 16 bytes; `at` must be aligned to the access.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  T v[kCount];
};

template <class T, int kCount>
__device__ void load(const T* at, float (&out)[kCount]) {
  const Pack<T, kCount> pack = *reinterpret_cast<const Pack<T, kCount>*>(at);
#pragma unroll
  for (int j = 0; j < kCount; ++j) out[j] = widen(pack.v[j]);
}

template <class T, int kCount>
__device__ void store(T* at, const float (&in)[kCount]) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int j = 0; j < kCount; ++j) pack.v[j] = narrow<T>(in[j]);
  *reinterpret_cast<Pack<T, kCount>*>(at) = pack;
}

// Every lane gets the sum, over the same tree.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  return x;
}

// Over a one-dimensional block of whole warps. `shared` has one float per warp. Every thread gets the result.
__device__ inline float block_sum(float x, float* shared) {
  x = warp_sum(x);
  const int warps = blockDim.x / 32;
  if (warps == 1) return x;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0;
  for (int i = 0; i < warps; ++i) total += shared[i];
  __syncthreads();
  return total;
}

__device__ inline float block_max(float x, float* shared) {
  x = warp_max(x);
  const int warps = blockDim.x / 32;
  if (warps == 1) return x;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float most = shared[0];
  for (int i = 1; i < warps; ++i) most = fmaxf(most, shared[i]);
  __syncthreads();
  return most;
}

// Whether rows of `view` can be read in packs of `count` elements that start at multiples of `count`.
inline bool packs(const View& view, int count) {
  if (view.empty()) return true;
  const int64_t bytes = count * dtype_bytes(view.dtype);
  const int64_t access = bytes < 16 ? bytes : 16;
  return reinterpret_cast<uintptr_t>(view.data) % access == 0 && view.cols % count == 0 &&
         (view.rows <= 1 || view.row_stride % count == 0);
}

// Calls body with a value of the element type: visit(dtype, [&](auto element) { using T = decltype(element); ... }).
template <class Body>
void visit_elements(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32: return body(float{});
    case DType::bf16: return body(Bf16{});
    default: fail_internal(std::string("a CUDA op was given ") + dtype_name(dtype) + "; it takes fp32 or bf16");
  }
}

// Elements of T in a 16-byte access.
template <class T>
inline constexpr int kPack = static_cast<int>(16 / sizeof(T));

inline unsigned grid_size(int64_t blocks) {
  ensure(blocks > 0 && blocks < (int64_t{1} << 31), "a grid has between 1 and 2^31 - 1 blocks");
  return static_cast<unsigned>(blocks);
}

// Number of threads for a row of `items` work items: whole warps, at most `most`.
inline unsigned row_threads(int64_t items, int64_t most) {
  const int64_t threads = round_up(items, 32);
  return static_cast<unsigned>(threads < 32 ? 32 : threads > most ? most : threads);
}

// An error may name a later launch, if a kernel failed while others were queued.
inline void check_launch(std::source_location at = std::source_location::current()) {
  cuda_check(cudaGetLastError(), at.function_name(), at.file_name(), static_cast<int>(at.line()));
}

}  // namespace megatrain
