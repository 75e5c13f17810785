// One block per row.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kMostThreads = 256;

template <class T>
__global__ void dropout_kernel(const T* x, int64_t x_stride, T* out, int64_t out_stride, int64_t cols, uint64_t key,
                               int64_t first_row, uint32_t threshold, float scale, bool accumulate) {
  const uint64_t row_key = mix_key(key, static_cast<uint64_t>(first_row) + blockIdx.x);
  const T* from = x + blockIdx.x * x_stride;
  T* to = out + blockIdx.x * out_stride;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    float value[1], before[1] = {0.0f};
    load<T, 1>(from + c, value);
    if (accumulate) load<T, 1>(to + c, before);
    const float kept = is_dropped(row_key, c, threshold) ? 0.0f : __fmul_rn(value[0], scale);
    value[0] = accumulate ? __fadd_rn(before[0], kept) : kept;
    store<T, 1>(to + c, value);
  }
}

}  // namespace

void launch(const Dropout& args, cudaStream_t stream) {
  if (args.x.rows == 0) return;
  ensure(args.x.rows == args.out.rows && args.x.cols == args.out.cols && args.x.dtype == args.out.dtype,
         "dropout keeps the shape");
  visit_elements(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    dropout_kernel<T><<<grid_size(args.x.rows), row_threads(args.x.cols, kMostThreads), 0, stream>>>(
        args.x.as<T>(), args.x.row_stride, args.out.as<T>(), args.out.row_stride, args.x.cols, args.key, args.first_row,
        dropout_threshold(args.rate), dropout_scale(args.rate), args.accumulate);
  });
  check_launch();
}

}  // namespace megatrain
