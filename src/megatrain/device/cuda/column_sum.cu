#include "megatrain/device/cuda/column_sum.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kLanes = 32;      // columns per block
constexpr int kSumRows = 32;    // threads that share a column when partials are summed
constexpr int kColumnRows = 8;  // threads that share a column of x
constexpr int64_t kRowsPerPartial = 128;

// block (kLanes, kSumRows)
__global__ void sum_partials_kernel(const float* partials, int64_t count, int64_t columns, float* out,
                                    bool accumulate) {
  __shared__ float shared[kSumRows][kLanes + 1];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kLanes + threadIdx.x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t p = threadIdx.y; p < count; p += kSumRows) sum += partials[p * columns + column];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
  for (int i = 0; i < kSumRows; ++i) total += shared[i][threadIdx.x];
  out[column] = accumulate ? out[column] + total : total;
}

// block (kLanes, kColumnRows), grid (columns, rows): partials[blockIdx.y][column]
template <class T>
__global__ void column_sum_kernel(const T* x, int64_t row_stride, int64_t rows, int64_t columns, float* partials) {
  __shared__ float shared[kColumnRows][kLanes + 1];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kLanes + threadIdx.x;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * kRowsPerPartial;
  const int64_t end = begin + kRowsPerPartial < rows ? begin + kRowsPerPartial : rows;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += kColumnRows) sum += widen(x[row * row_stride + column]);
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
  for (int i = 0; i < kColumnRows; ++i) total += shared[i][threadIdx.x];
  partials[blockIdx.y * columns + column] = total;
}

}  // namespace

void launch_sum_partials(const float* partials, int64_t count, int64_t columns, float* out, bool accumulate,
                         cudaStream_t stream) {
  sum_partials_kernel<<<grid_size(ceil_div(columns, kLanes)), dim3(kLanes, kSumRows), 0, stream>>>(
      partials, count, columns, out, accumulate);
  check_launch();
}

int64_t column_sum_scratch_bytes(int64_t rows, int64_t columns) {
  return ceil_div(rows, kRowsPerPartial) * columns * static_cast<int64_t>(sizeof(float));
}

void launch_column_sum(const View& x, float* out, bool accumulate, void* scratch, cudaStream_t stream) {
  float* partials = static_cast<float*>(scratch);
  const int64_t count = ceil_div(x.rows, kRowsPerPartial);
  if (count > 0) {
    ensure(count < 65536, "column sums take at most 65535 blocks of 128 rows");
    visit_elements(x.dtype, [&](auto element) {
      using T = decltype(element);
      const dim3 grid(grid_size(ceil_div(x.cols, kLanes)), static_cast<unsigned>(count));
      column_sum_kernel<T>
          <<<grid, dim3(kLanes, kColumnRows), 0, stream>>>(x.as<T>(), x.row_stride, x.rows, x.cols, partials);
    });
    check_launch();
  }
  launch_sum_partials(partials, count, x.cols, out, accumulate, stream);
}

}  // namespace megatrain
