#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kWarps = 4;
constexpr int64_t kMostRows = 4;

// One warp is one column of the output: it reads the weight's row once, for all kRows rows of x. Lanes take turns with
// packs and are summed as a tree, so the result depends only on the sizes.
template <class In, class Out, int kRows>
__global__ void few_rows_kernel(int64_t n, int64_t k, const In* x, int64_t x_row, const In* weight, int64_t weight_row,
                                const In* bias, const Out* residual, int64_t residual_row, Out* out, int64_t out_row,
                                float scale) {
  constexpr int kCount = kPack<In>;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (column >= n) return;
  float sum[kRows] = {};
  const In* row = weight + column * weight_row;
#pragma unroll 4
  for (int64_t at = lane * kCount; at < k; at += 32 * kCount) {
    float w[kCount];
    load<In, kCount>(row + at, w);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float values[kCount];
      load<In, kCount>(x + r * x_row + at, values);
#pragma unroll
      for (int j = 0; j < kCount; ++j) sum[r] += values[j] * w[j];
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float total = scale * warp_sum(sum[r]);
    if (lane > 0) continue;
    if (bias) total += widen(bias[column]);
    if (residual) total += widen(residual[r * residual_row + column]);
    out[r * out_row + column] = narrow<Out>(total);
  }
}

template <class In, class Out>
void launch_rows(const LinearForward& args, cudaStream_t stream) {
  const unsigned grid = grid_size(ceil_div(args.weight.rows, kWarps));
  const auto run = [&]<int kRows>() {
    few_rows_kernel<In, Out, kRows><<<grid, kWarps * 32, 0, stream>>>(
        args.weight.rows, args.weight.cols, args.x.as<In>(), args.x.row_stride, args.weight.as<In>(),
        args.weight.row_stride, args.bias.as<In>(), args.residual.as<Out>(), args.residual.row_stride,
        args.out.as<Out>(), args.out.row_stride, args.scale);
  };
  switch (args.x.rows) {
    case 1: return run.template operator()<1>();
    case 2: return run.template operator()<2>();
    case 3: return run.template operator()<3>();
    default: return run.template operator()<4>();
  }
}

}  // namespace

bool has_few_rows(const LinearForward& args) {
  const int count = static_cast<int>(16 / dtype_bytes(args.x.dtype));
  return args.x.rows > 0 && args.x.rows <= kMostRows && args.weight.dtype == args.x.dtype && packs(args.x, count) &&
         packs(args.weight, count);
}

void launch_few_rows(const LinearForward& args, cudaStream_t stream) {
  visit_elements(args.x.dtype, [&](auto element) {
    using In = decltype(element);
    if (args.out.dtype == DType::f32) {
      launch_rows<In, float>(args, stream);
    } else {
      ensure(args.out.dtype == args.x.dtype, "a matmul's output is fp32 or of its operands' dtype");
      launch_rows<In, In>(args, stream);
    }
  });
  check_launch();
}

}  // namespace megatrain
