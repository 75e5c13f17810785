// One thread per block of 32 numbers, or per 16 bytes of a plain copy.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/ops/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kThreads = 256;

// Twice the number of a code times half its block's power of two. The power can be 2^128, which is beyond fp32, while
// half of it is not.
__device__ float value_of(unsigned code, float half_power) {
  constexpr unsigned kTwice = 0xC8643210u;  // 0, 1, 2, 3, 4, 6, 8, 12
  const float twice = static_cast<float>((kTwice >> (4 * (code & 7u))) & 15u) * half_power;
  return code & 8u ? -twice : twice;
}

// 2^(scale - 128); the lowest two are subnormal.
__device__ float half_power_of(unsigned scale) {
  return scale > 1 ? __uint_as_float((scale - 1) << 23) : __uint_as_float(0x200000u << scale);
}

template <class T>
__global__ void unpack_mxfp4_kernel(UnpackWeights args) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (block * kMxfp4Block >= args.elements) return;
  const std::byte* packed = args.packed + blockIdx.y * args.packed_stride;
  T* out = reinterpret_cast<T*>(args.out + blockIdx.y * args.out_stride) + block * kMxfp4Block;
  const uint4 codes = reinterpret_cast<const uint4*>(packed)[block];
  const float half_power =
      half_power_of(static_cast<unsigned>(reinterpret_cast<const unsigned char*>(packed + args.elements / 2)[block]));
  const unsigned words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = value_of(words[word] >> (4 * i), half_power);
    store<T, 8>(out + 8 * word, values);
  }
}

// `aligned`: every part starts at a multiple of 16 bytes, in source and destination.
__global__ void copy_parts_kernel(UnpackWeights args, int64_t bytes, bool aligned) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 16;
  const std::byte* from = args.packed + blockIdx.y * args.packed_stride;
  std::byte* to = args.out + blockIdx.y * args.out_stride;
  if (aligned && at + 16 <= bytes) {
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
  } else {
    for (int64_t i = at; i < at + 16 && i < bytes; ++i) to[i] = from[i];
  }
}

}  // namespace

void launch(const UnpackWeights& args, cudaStream_t stream) {
  if (args.elements == 0 || args.parts == 0) return;
  ensure(args.parts < 65536, "a record has fewer than 65536 parts");
  if (args.packing == WeightPacking::none) {
    const int64_t bytes = args.elements * dtype_bytes(args.dtype);
    const dim3 grid(grid_size(ceil_div(bytes, 16 * kThreads)), static_cast<unsigned>(args.parts));
    const auto out = reinterpret_cast<uintptr_t>(args.out);
    const bool aligned = out % 16 == 0 && args.out_stride % 16 == 0 && args.packed_stride % 16 == 0;
    copy_parts_kernel<<<grid, kThreads, 0, stream>>>(args, bytes, aligned);
  } else {
    ensure(args.elements % kMxfp4Block == 0, "a packed tensor has whole blocks");
    const dim3 grid(grid_size(ceil_div(args.elements, kMxfp4Block * kThreads)), static_cast<unsigned>(args.parts));
    visit_elements(args.dtype,
                   [&](auto element) { unpack_mxfp4_kernel<decltype(element)><<<grid, kThreads, 0, stream>>>(args); });
  }
  check_launch();
}

}  // namespace megatrain
