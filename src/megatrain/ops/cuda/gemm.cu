#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kTile = 16;

// block (kTile, kTile), grid (m, n): one element of c per thread, k in order.
template <class In, class Out>
__global__ void gemm_kernel(SimpleGemm args) {
  __shared__ float a_tile[kTile][kTile + 1], b_tile[kTile][kTile + 1];
  const In* a = static_cast<const In*>(args.a);
  const In* b = static_cast<const In*>(args.b);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kTile + threadIdx.y;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kTile + threadIdx.x;
  float sum = 0;
  for (int64_t k = 0; k < args.k; k += kTile) {
    const int64_t a_k = k + threadIdx.x, b_k = k + threadIdx.y;
    a_tile[threadIdx.y][threadIdx.x] =
        row < args.m && a_k < args.k ? widen(a[row * args.a_row + a_k * args.a_column]) : 0.0f;
    b_tile[threadIdx.y][threadIdx.x] =
        b_k < args.k && column < args.n ? widen(b[b_k * args.b_row + column * args.b_column]) : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; ++i) sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
    __syncthreads();
  }
  if (row >= args.m || column >= args.n) return;
  Out* c = static_cast<Out*>(args.c) + row * args.c_row + column;
  sum *= args.scale;
  if (args.bias) sum += widen(static_cast<const In*>(args.bias)[column]);
  if (args.residual) sum += widen(static_cast<const Out*>(args.residual)[row * args.residual_row + column]);
  *c = narrow<Out>(sum);
}

template <class In>
__global__ void add_bias_kernel(float* out, int64_t row_stride, int64_t columns, const In* bias) {
  float* row = out + blockIdx.x * row_stride;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) row[c] += widen(bias[c]);
}

}  // namespace

void launch(const SimpleGemm& args, cudaStream_t stream) {
  if (args.m == 0 || args.n == 0) return;
  const int64_t columns = ceil_div(args.n, kTile);
  ensure(columns < 65536, "the simple matmul takes at most 1,048,560 columns");
  const dim3 grid(grid_size(ceil_div(args.m, kTile)), static_cast<unsigned>(columns));
  const dim3 block(kTile, kTile);
  if (args.in == DType::f32 && args.out == DType::f32) {
    gemm_kernel<float, float><<<grid, block, 0, stream>>>(args);
  } else if (args.in == DType::bf16 && args.out == DType::bf16) {
    gemm_kernel<Bf16, Bf16><<<grid, block, 0, stream>>>(args);
  } else if (args.in == DType::bf16 && args.out == DType::f32) {
    gemm_kernel<Bf16, float><<<grid, block, 0, stream>>>(args);
  } else {
    fail_internal(std::string("a matmul from ") + dtype_name(args.in) + " to " + dtype_name(args.out) +
                  " is not among fp32 to fp32, bf16 to bf16 and bf16 to fp32");
  }
  check_launch();
}

void launch_add_bias(const View& out, const View& bias, cudaStream_t stream) {
  if (out.rows == 0) return;
  visit_elements(bias.dtype, [&](auto element) {
    using T = decltype(element);
    add_bias_kernel<T><<<grid_size(out.rows), row_threads(out.cols, 256), 0, stream>>>(out.as<float>(), out.row_stride,
                                                                                       out.cols, bias.as<T>());
  });
  check_launch();
}

}  // namespace megatrain
