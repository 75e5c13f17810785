// One thread per block of 32 numbers of MXFP4, per 16 numbers of fp8, or per 16 bytes of a plain copy.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

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

constexpr int64_t kFp8Run = 16;  // numbers of a thread

// The bits of E4M3 are those of a float whose exponent is too small by 120. No NaN gets here.
__device__ float fp8_number(unsigned code) {
  const float size = __uint_as_float((code & 0x7Fu) << 20) * 0x1p120f;
  return code & 0x80u ? -size : size;
}

// `whole`: all runs of a thread are whole, lie in one row, and their values can be stored 16 bytes at a time.
template <class T>
__global__ void unpack_fp8_kernel(UnpackWeights args, int64_t scales_at, bool whole) {
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kFp8Run;
  if (begin >= args.elements) return;
  const std::byte* packed = args.packed + blockIdx.y * args.packed_stride;
  const float* scales = reinterpret_cast<const float*>(packed + scales_at);
  T* out = reinterpret_cast<T*>(args.out + blockIdx.y * args.out_stride);
  const int64_t row_scales = (args.cols + kFp8Block - 1) / kFp8Block;
  int64_t row = begin / args.cols, col = begin - row * args.cols;
  if (whole) {
    const uint4 codes = *reinterpret_cast<const uint4*>(packed + begin);
    const float scale = scales[row / kFp8Block * row_scales + col / kFp8Block];
    const unsigned words[4] = {codes.x, codes.y, codes.z, codes.w};
    float values[kFp8Run];
#pragma unroll
    for (int i = 0; i < kFp8Run; ++i) values[i] = __fmul_rn(fp8_number((words[i / 4] >> (8 * (i % 4))) & 0xFFu), scale);
    constexpr int kStored = kPack<T>;
#pragma unroll
    for (int at = 0; at < kFp8Run; at += kStored) {
      float part[kStored];
#pragma unroll
      for (int i = 0; i < kStored; ++i) part[i] = values[at + i];
      store<T, kStored>(out + begin + at, part);
    }
    return;
  }
  const int64_t end = begin + kFp8Run < args.elements ? begin + kFp8Run : args.elements;
  for (int64_t i = begin; i < end; ++i) {
    const float scale = scales[row / kFp8Block * row_scales + col / kFp8Block];
    out[i] = narrow<T>(__fmul_rn(fp8_number(reinterpret_cast<const unsigned char*>(packed)[i]), scale));
    if (++col == args.cols) {
      col = 0;
      ++row;
    }
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
  const auto out = reinterpret_cast<uintptr_t>(args.out);
  const bool aligned = out % 16 == 0 && args.out_stride % 16 == 0 && args.packed_stride % 16 == 0;
  if (args.packing == WeightPacking::none) {
    const int64_t bytes = args.elements * dtype_bytes(args.dtype);
    const dim3 grid(grid_size(ceil_div(bytes, 16 * kThreads)), static_cast<unsigned>(args.parts));
    copy_parts_kernel<<<grid, kThreads, 0, stream>>>(args, bytes, aligned);
  } else if (args.packing == WeightPacking::fp8) {
    ensure(args.cols > 0 && args.elements % args.cols == 0, "a tensor in fp8 has whole rows");
    const dim3 grid(grid_size(ceil_div(args.elements, kFp8Run * kThreads)), static_cast<unsigned>(args.parts));
    const int64_t scales_at = packed_scales_at(args.packing, 1, args.elements);
    const bool whole = aligned && args.cols % kFp8Run == 0;
    visit_elements(args.dtype, [&](auto element) {
      unpack_fp8_kernel<decltype(element)><<<grid, kThreads, 0, stream>>>(args, scales_at, whole);
    });
  } else {
    ensure(args.elements % kMxfp4Block == 0, "a packed tensor has whole blocks");
    const dim3 grid(grid_size(ceil_div(args.elements, kMxfp4Block * kThreads)), static_cast<unsigned>(args.parts));
    visit_elements(args.dtype,
                   [&](auto element) { unpack_mxfp4_kernel<decltype(element)><<<grid, kThreads, 0, stream>>>(args); });
  }
  check_launch();
}

}  // namespace megatrain
