// One block per row.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kMostThreads = 256;

template <class T>
__global__ void move_columns_kernel(T* wide, int64_t wide_stride, const int32_t* columns, T* narrow,
                                    int64_t narrow_stride, int64_t count, bool take) {
  T* of_wide = wide + blockIdx.x * wide_stride;
  T* of_narrow = narrow + blockIdx.x * narrow_stride;
  for (int64_t j = threadIdx.x; j < count; j += blockDim.x) {
    T* at = of_wide + columns[j];
    if (take) {
      of_narrow[j] = *at;
      const float zero[1] = {0.0f};
      store<T, 1>(at, zero);
    } else {
      *at = of_narrow[j];
    }
  }
}

}  // namespace

void launch(const MoveColumns& args, cudaStream_t stream) {
  if (args.narrow.rows == 0 || args.narrow.cols == 0) return;
  ensure(args.wide.dtype == args.narrow.dtype && args.wide.rows == args.narrow.rows,
         "columns keep their dtype and length");
  visit_elements(args.wide.dtype, [&](auto element) {
    using T = decltype(element);
    move_columns_kernel<T><<<grid_size(args.narrow.rows), row_threads(args.narrow.cols, kMostThreads), 0, stream>>>(
        args.wide.as<T>(), args.wide.row_stride, args.columns, args.narrow.as<T>(), args.narrow.row_stride,
        args.narrow.cols, args.take);
  });
  check_launch();
}

}  // namespace megatrain
