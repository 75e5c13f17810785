// Sums in fp64 over trees that depend only on the block.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kThreads = 256;
constexpr int kVec = 4;
static_assert(kNormBlock % (kThreads * kVec) == 0);

// Thread 0 gets the sum. The tree halves the range at each level.
template <class Number>
__device__ Number tree_sum(Number x, Number* shared) {
  shared[threadIdx.x] = x;
  __syncthreads();
#pragma unroll
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  return shared[0];
}

// One thread block per kNormBlock elements of a part. A thread takes kVec adjacent ones of every kThreads * kVec. If
// `out` is null, nothing is stored.
template <class T, bool kAligned>
__global__ void finish_kernel(const float* grad, T* out, int64_t part_elements, int64_t part_blocks, double* partials) {
  __shared__ double shared[kThreads];
  const int64_t part = blockIdx.x / part_blocks * part_elements, count = part + part_elements;
  const int64_t begin = part + blockIdx.x % part_blocks * kNormBlock;
  double sum = 0;
  for (int64_t k = 0; k < kNormBlock; k += kThreads * kVec) {
    const int64_t i = begin + k + threadIdx.x * kVec;
    if (kAligned && i + kVec <= count) {
      float g[kVec];
      load<float, kVec>(grad + i, g);
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        g[j] = widen(narrow<T>(g[j]));
        sum += static_cast<double>(g[j]) * static_cast<double>(g[j]);
      }
      if (out) store<T, kVec>(out + i, g);
    } else {
      for (int j = 0; j < kVec && i + j < count; ++j) {
        const T rounded = narrow<T>(grad[i + j]);
        if (out) out[i + j] = rounded;
        sum += static_cast<double>(widen(rounded)) * static_cast<double>(widen(rounded));
      }
    }
  }
  sum = tree_sum(sum, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// Thread 0 gets the sum in index order: all threads load, and only thread 0 adds.
__device__ double ordered_sum(const double* values, int64_t count, double* shared) {
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += kThreads) {
    if (begin + threadIdx.x < count) shared[threadIdx.x] = values[begin + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
      const int here = static_cast<int>(count - begin < kThreads ? count - begin : kThreads);
      for (int i = 0; i < here; ++i) sum += shared[i];
    }
    __syncthreads();
  }
  return sum;
}

// One block per part.
__global__ void add_partials_kernel(const double* partials, int64_t part_blocks, double* sums_of_squares) {
  __shared__ double shared[kThreads];
  const double sum = ordered_sum(partials + blockIdx.x * part_blocks, part_blocks, shared);
  if (threadIdx.x == 0) sums_of_squares[blockIdx.x] = sum;
}

__global__ void clip_factor_kernel(ClipFactor args) {
  __shared__ double shared[kThreads];
  const double sum = ordered_sum(args.squares, args.count, shared);
  if (threadIdx.x == 0) *args.factor = static_cast<float>(clip_factor_of(sum, args.clip));
}

__global__ void sum_losses_kernel(const float* loss, const int32_t* correct, int64_t tokens, double* loss_sum,
                                  int64_t* correct_sum) {
  __shared__ double losses[kThreads];
  __shared__ int64_t counts[kThreads];
  double sum = 0;
  int64_t hits = 0;
  for (int64_t i = threadIdx.x; i < tokens; i += kThreads) {
    sum += static_cast<double>(loss[i]);
    hits += correct[i];
  }
  sum = tree_sum(sum, losses);
  hits = tree_sum(hits, counts);
  if (threadIdx.x == 0) {
    *loss_sum = sum;
    *correct_sum = hits;
  }
}

}  // namespace

void launch(const FinishGradient& args, cudaStream_t stream) {
  const int64_t count = args.grad.elements();
  ensure(args.grad.dtype == DType::f32 &&
             (args.out.empty() || (args.out.elements() == count && args.out.dtype == args.dtype)),
         "a gradient is rounded element by element");
  ensure(args.parts > 0 && count % args.parts == 0, "the parts of a gradient are of equal size");
  const int64_t part = args.part_elements(), blocks = args.part_blocks();
  if (blocks > 0) {
    const bool aligned = reinterpret_cast<uintptr_t>(args.grad.data) % 16 == 0 &&
                         reinterpret_cast<uintptr_t>(args.out.data) % 16 == 0 && (args.parts == 1 || part % kVec == 0);
    visit_elements(args.dtype, [&](auto element) {
      using T = decltype(element);
      const auto kernel = aligned ? finish_kernel<T, true> : finish_kernel<T, false>;
      kernel<<<grid_size(args.parts * blocks), kThreads, 0, stream>>>(args.grad.as<float>(), args.out.as<T>(), part,
                                                                      blocks, args.partials);
    });
    check_launch();
  }
  add_partials_kernel<<<grid_size(args.parts), kThreads, 0, stream>>>(args.partials, blocks, args.sums_of_squares);
  check_launch();
}

void launch(const ClipFactor& args, cudaStream_t stream) {
  clip_factor_kernel<<<1, kThreads, 0, stream>>>(args);
  check_launch();
}

void launch(const SumLosses& args, cudaStream_t stream) {
  sum_losses_kernel<<<1, kThreads, 0, stream>>>(args.loss, args.correct, args.tokens, args.loss_sum, args.correct_sum);
  check_launch();
}

}  // namespace megatrain
