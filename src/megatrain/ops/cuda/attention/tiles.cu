#include "megatrain/ops/cuda/attention/launch.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kThreads = 256;
constexpr int kVec = 8;  // elements per thread

// A thread owns kVec adjacent elements of a row.
__global__ void add_partial_kernel(int64_t rows, int64_t packs, View partial, View sum, bool first) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows * packs) return;
  const int64_t row = at / packs, column = at % packs * kVec;
  float values[kVec], total[kVec];
  load<Bf16, kVec>(static_cast<const Bf16*>(partial.data) + row * partial.row_stride + column, values);
  float* to = static_cast<float*>(sum.data) + row * sum.row_stride + column;
  if (!first) {
    load<float, kVec>(to, total);
#pragma unroll
    for (int j = 0; j < kVec; ++j) values[j] = total[j] + values[j];
  }
  store<float, kVec>(to, values);
}

__global__ void round_sum_kernel(int64_t rows, int64_t packs, View sum, View out) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows * packs) return;
  const int64_t row = at / packs, column = at % packs * kVec;
  float values[kVec];
  load<float, kVec>(static_cast<const float*>(sum.data) + row * sum.row_stride + column, values);
  store<Bf16, kVec>(static_cast<Bf16*>(out.data) + row * out.row_stride + column, values);
}

// A thread owns kVec adjacent elements of a row, all of one head.
__global__ void merge_partial_kernel(__grid_constant__ const MergePartial args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, packs = args.sum.cols / kVec;
  if (at >= args.sum.rows * packs) return;
  const int64_t row = at / packs, column = at % packs * kVec, of_lse = column / args.head_dim * args.sum.rows + row;
  float values[kVec], lse = args.partial_lse[of_lse];
  load<Bf16, kVec>(static_cast<const Bf16*>(args.partial.data) + row * args.partial.row_stride + column, values);
  float* to = static_cast<float*>(args.sum.data) + row * args.sum.row_stride + column;
  if (args.lse != nullptr) {
    const float before = args.lse[of_lse], more = lse;
    lse = fmaxf(before, more) + log1pf(expf(-fabsf(before - more)));
    const float keep = expf(before - lse), add = expf(more - lse);
    float total[kVec];
    load<float, kVec>(to, total);
#pragma unroll
    for (int j = 0; j < kVec; ++j) values[j] = fmaf(keep, total[j], add * values[j]);
  }
  store<float, kVec>(to, values);
  if (column % args.head_dim == 0) args.merged_lse[of_lse] = lse;
}

unsigned blocks_of(const View& view) { return grid_size(ceil_div(view.rows * (view.cols / kVec), kThreads)); }

}  // namespace

void launch_add_partial(const View& partial, const View& sum, bool first, cudaStream_t stream) {
  ensure(partial.dtype == DType::bf16 && sum.dtype == DType::f32 && packs(partial, kVec) && packs(sum, kVec),
         "partial gradients lie in whole packs");
  add_partial_kernel<<<blocks_of(sum), kThreads, 0, stream>>>(sum.rows, sum.cols / kVec, partial, sum, first);
  check_launch();
}

void launch_merge_partial(const MergePartial& args, cudaStream_t stream) {
  ensure(args.partial.dtype == DType::bf16 && args.sum.dtype == DType::f32 && packs(args.partial, kVec) &&
             packs(args.sum, kVec) && args.head_dim % kVec == 0,
         "partial outputs lie in whole packs");
  merge_partial_kernel<<<blocks_of(args.sum), kThreads, 0, stream>>>(args);
  check_launch();
}

void launch_round_sum(const View& sum, const View& out, cudaStream_t stream) {
  ensure(sum.dtype == DType::f32 && out.dtype == DType::bf16 && packs(sum, kVec) && packs(out, kVec),
         "gradients lie in whole packs");
  round_sum_kernel<<<blocks_of(out), kThreads, 0, stream>>>(out.rows, out.cols / kVec, sum, out);
  check_launch();
}

}  // namespace megatrain
