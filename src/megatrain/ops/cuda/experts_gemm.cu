// Matmuls of mixtures of experts for any GPU, dtype and alignment, in tiles of kTile x kTile with k in order. Rows of
// different experts never share a tile, so a row's result does not depend on the other experts of a call.
#include <mma.h>

#include <type_traits>

#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kTile = 64;   // rows and columns of a result
constexpr int kDepth = 32;  // elements of k at a time
constexpr int kThreads = 128;
constexpr int kResultWidth = kTile + 4;
template <class T>
inline constexpr int kPad = kPack<T>;  // after each line of a tile, against bank conflicts

// A tile of an operand: lines of contiguous elements, along k (kAlongK) or across it.
template <class T, bool kAlongK>
struct OperandTile {
  static constexpr int kLines = kAlongK ? kTile : kDepth, kLength = kAlongK ? kDepth : kTile;
  static constexpr int kStride = kLength + kPad<T>;
  alignas(32) T data[kLines * kStride];

  // Element i of the result's row or column, at depth k.
  __device__ T* at(int i, int k) { return data + (kAlongK ? i * kStride + k : k * kStride + i); }

  // Loads from `from`, with lines `leading` apart. Zero beyond the first `lines` lines and `length` elements of each.
  template <int kVec>
  __device__ void load_from(const T* from, int64_t leading, int64_t lines, int64_t length) {
    constexpr int kPacks = kLength / kVec;
    for (int i = threadIdx.x; i < kLines * kPacks; i += kThreads) {
      const int line = i / kPacks, place = i % kPacks * kVec;
      Pack<T, kVec> pack;
      if (line < lines && place < length) {
        pack = *reinterpret_cast<const Pack<T, kVec>*>(from + line * leading + place);
      } else {
#pragma unroll
        for (int j = 0; j < kVec; ++j) pack.v[j] = T(0.0f);
      }
      *reinterpret_cast<Pack<T, kVec>*>(data + line * kStride + place) = pack;
    }
  }
};

// The sums of a block of kThreads threads.
template <class T, bool kAAlongK, bool kBAlongK>
class Sums;

// fp32: a thread owns rows y + 8 i and columns x + 16 j.
template <bool kAAlongK, bool kBAlongK>
class Sums<float, kAAlongK, kBAlongK> {
 public:
  __device__ void add(OperandTile<float, kAAlongK>& a, OperandTile<float, kBAlongK>& b) {
    for (int k = 0; k < kDepth; ++k) {
      float row[8], column[4];
#pragma unroll
      for (int i = 0; i < 8; ++i) row[i] = *a.at(y() + 8 * i, k);
#pragma unroll
      for (int j = 0; j < 4; ++j) column[j] = *b.at(x() + 16 * j, k);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum_[i][j] = fmaf(row[i], column[j], sum_[i][j]);
      }
    }
  }
  __device__ void store_to(float* result) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) result[(y() + 8 * i) * kResultWidth + x() + 16 * j] = sum_[i][j];
    }
  }

 private:
  static __device__ int x() { return threadIdx.x % 16; }
  static __device__ int y() { return threadIdx.x / 16; }
  float sum_[8][4] = {};
};

// bf16: each of the four warps owns a quarter, 2 x 2 tensor-core fragments.
template <bool kAAlongK, bool kBAlongK>
class Sums<Bf16, kAAlongK, kBAlongK> {
 public:
  __device__ Sums() {
#pragma unroll
    for (int i = 0; i < 4; ++i) nvcuda::wmma::fill_fragment(sum_[i / 2][i % 2], 0.0f);
  }
  __device__ void add(OperandTile<Bf16, kAAlongK>& a, OperandTile<Bf16, kBAlongK>& b) {
    using Rows = nvcuda::wmma::row_major;
    using Columns = nvcuda::wmma::col_major;
    using A = std::conditional_t<kAAlongK, Rows, Columns>;
    using B = std::conditional_t<kBAlongK, Columns, Rows>;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, Bf16, A> rows[2];
      nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, Bf16, B> columns[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        nvcuda::wmma::load_matrix_sync(rows[i], a.at(first_row() + 16 * i, k), OperandTile<Bf16, kAAlongK>::kStride);
        nvcuda::wmma::load_matrix_sync(columns[i], b.at(first_column() + 16 * i, k),
                                       OperandTile<Bf16, kBAlongK>::kStride);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) nvcuda::wmma::mma_sync(sum_[i][j], rows[i], columns[j], sum_[i][j]);
      }
    }
  }
  __device__ void store_to(float* result) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        nvcuda::wmma::store_matrix_sync(result + (first_row() + 16 * i) * kResultWidth + first_column() + 16 * j,
                                        sum_[i][j], kResultWidth, nvcuda::wmma::mem_row_major);
      }
    }
  }

 private:
  static __device__ int first_row() { return static_cast<int>(threadIdx.x) / 64 * 32; }
  static __device__ int first_column() { return static_cast<int>(threadIdx.x) / 32 % 2 * 32; }
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sum_[2][2];
};

template <class T, bool kAAlongK, bool kBAlongK>
struct Workspace {
  OperandTile<T, kAAlongK> a;
  OperandTile<T, kBAlongK> b;
  alignas(32) float result[kTile * kResultWidth];
};

// workspace.result = a b for the first `m` rows and `n` columns; a and b point at the tile's first line or element.
template <int kVec, class T, bool kAAlongK, bool kBAlongK>
__device__ void multiply(Workspace<T, kAAlongK, kBAlongK>& workspace, const T* a, int64_t a_leading, int64_t m,
                         const T* b, int64_t b_leading, int64_t n, int64_t k) {
  Sums<T, kAAlongK, kBAlongK> sums;
  for (int64_t at = 0; at < k; at += kDepth) {
    if constexpr (kAAlongK) {
      workspace.a.template load_from<kVec>(a + at, a_leading, m, k - at);
    } else {
      workspace.a.template load_from<kVec>(a + at * a_leading, a_leading, k - at, m);
    }
    if constexpr (kBAlongK) {
      workspace.b.template load_from<kVec>(b + at, b_leading, n, k - at);
    } else {
      workspace.b.template load_from<kVec>(b + at * b_leading, b_leading, k - at, n);
    }
    __syncthreads();
    sums.add(workspace.a, workspace.b);
    __syncthreads();
  }
  sums.store_to(workspace.result);
  __syncthreads();
}

// Row tiles are numbered expert by expert.
struct RowTile {
  int64_t expert;  // -1: there is no such tile
  int64_t first, rows;
};

// Every lane of every warp gets the same result.
__device__ RowTile row_tile(const int32_t* begin, int64_t experts, int64_t tile) {
  const int lane = threadIdx.x % 32;
  int64_t before = 0;  // tiles of the experts before `from`
  for (int64_t from = 0; from < experts; from += 32) {
    const int64_t expert = from + lane;
    const int rows = expert < experts ? begin[expert + 1] - begin[expert] : 0;
    const int tiles = (rows + kTile - 1) / kTile;
    int up_to = tiles;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int below = __shfl_up_sync(0xFFFFFFFFu, up_to, offset);
      if (lane >= offset) up_to += below;
    }
    const unsigned reached = __ballot_sync(0xFFFFFFFFu, tile < before + up_to);
    if (reached) {
      const int source = __ffs(static_cast<int>(reached)) - 1;
      const int64_t first_tile = before + __shfl_sync(0xFFFFFFFFu, up_to - tiles, source);
      const int expert_rows = __shfl_sync(0xFFFFFFFFu, rows, source);
      const int64_t offset = (tile - first_tile) * kTile;
      return {from + source, begin[from + source] - begin[0] + offset, expert_rows - offset};
    }
    before += __shfl_sync(0xFFFFFFFFu, up_to, 31);
  }
  return {-1, 0, 0};
}

// out (rows, n) (+)= scale x (rows, k) weight(expert) + bias(expert). grid (row tiles, columns). kWeightAlongK: the
// weight is stored (n, k), not (k, n).
template <class T, bool kWeightAlongK, int kVec>
__global__ void rows_kernel(const int32_t* begin, int64_t experts, const T* x, int64_t x_stride, const T* weight,
                            int64_t weight_leading, int64_t weight_stride, const T* bias, int64_t bias_stride, T* out,
                            int64_t out_stride, int64_t n, int64_t k, float scale, bool accumulate) {
  __shared__ Workspace<T, true, kWeightAlongK> workspace;
  const RowTile tile = row_tile(begin, experts, blockIdx.x);
  if (tile.expert < 0) return;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kTile;
  const T* matrix = weight + tile.expert * weight_stride + (kWeightAlongK ? column * weight_leading : column);
  multiply<kVec>(workspace, x + tile.first * x_stride, x_stride, tile.rows, matrix, weight_leading, n - column, k);
  for (int i = threadIdx.x; i < kTile * kTile; i += kThreads) {
    const int r = i / kTile, c = i % kTile;
    if (r >= tile.rows || column + c >= n) continue;
    float value = scale * workspace.result[r * kResultWidth + c];
    if (bias) value += widen(bias[tile.expert * bias_stride + column + c]);
    T* place = out + (tile.first + r) * out_stride + column + c;
    *place = narrow<T>(accumulate ? widen(*place) + value : value);
  }
}

// grad (n, k) (+)= scale grad_out^T x over the expert's rows. grid (n, k, experts).
template <class T, int kVec>
__global__ void weight_kernel(const int32_t* begin, const int32_t* origin, const T* grad_out, int64_t grad_out_stride,
                              const T* x, int64_t x_stride, float* grad, int64_t grad_leading, int64_t grad_stride,
                              int64_t n, int64_t k, bool accumulate, float scale) {
  __shared__ Workspace<T, false, false> workspace;
  const int64_t expert = blockIdx.z;
  const int64_t first = begin[expert] - *origin, rows = begin[expert + 1] - begin[expert];
  if (rows == 0 && accumulate) return;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kTile, column = static_cast<int64_t>(blockIdx.y) * kTile;
  multiply<kVec>(workspace, grad_out + first * grad_out_stride + row, grad_out_stride, n - row,
                 x + first * x_stride + column, x_stride, k - column, rows);
  float* to = grad + expert * grad_stride;
  for (int i = threadIdx.x; i < kTile * kTile; i += kThreads) {
    const int r = i / kTile, c = i % kTile;
    if (row + r >= n || column + c >= k) continue;
    float* place = to + (row + r) * grad_leading + column + c;
    const float value = scale * workspace.result[r * kResultWidth + c];
    *place = accumulate ? *place + value : value;
  }
}

constexpr int kBiasRows = 16;  // threads that share a column

// grad_bias[c] (+)= the sum of column c over the expert's rows. block (32, kBiasRows), grid (columns, experts)
template <class T>
__global__ void bias_kernel(const int32_t* begin, const int32_t* origin, const T* grad_out, int64_t stride,
                            int64_t columns, float* grad_bias, int64_t bias_stride, bool accumulate) {
  __shared__ float shared[kBiasRows][33];
  const int64_t expert = blockIdx.y;
  const int64_t first = begin[expert] - *origin, end = begin[expert + 1] - *origin;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = first + threadIdx.y; row < end; row += kBiasRows) sum += widen(grad_out[row * stride + column]);
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
  for (int i = 0; i < kBiasRows; ++i) total += shared[i][threadIdx.x];
  float* place = grad_bias + expert * bias_stride + column;
  *place = accumulate ? *place + total : total;
}

// grid (blocks of rows, experts)
__global__ void zero_unused_kernel(const int32_t* begin, float* grad, int64_t leading, int64_t stride, int64_t n,
                                   int64_t k) {
  const int64_t expert = blockIdx.y;
  if (begin[expert + 1] != begin[expert]) return;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    float* to = grad + expert * stride + row * leading;
    for (int64_t c = threadIdx.x; c < k; c += blockDim.x) to[c] = 0;
  }
}

// Whether each expert's matrix can be read in packs, as packs() tells for one matrix.
bool packs_each(const ExpertWeights& weights, int count) {
  return packs(weights.first, count) && weights.stride % count == 0;
}

// Upper bound of the number of row tiles: the last tile of each expert may be partial.
unsigned row_tiles(const ExpertRows& rows) { return grid_size(ceil_div(rows.most, kTile) + rows.experts); }

unsigned column_tiles(int64_t columns) {
  const int64_t tiles = ceil_div(columns, kTile);
  ensure(tiles < 65536, "the experts' matmul takes at most 4,194,240 columns");
  return static_cast<unsigned>(tiles);
}

void check_experts(const ExpertRows& rows) { ensure(rows.experts < 65536, "a group has at most 65535 experts"); }

template <class T, bool kWeightAlongK>
void launch_rows(const ExpertRows& rows, const View& x, const ExpertWeights& weight, const ExpertWeights& bias,
                 const View& out, float scale, bool accumulate, cudaStream_t stream) {
  const dim3 grid(row_tiles(rows), column_tiles(out.cols));
  const auto run = [&]<int kVec>() {
    rows_kernel<T, kWeightAlongK, kVec><<<grid, kThreads, 0, stream>>>(
        rows.begin, rows.experts, x.as<T>(), x.row_stride, weight.first.as<T>(), weight.first.row_stride, weight.stride,
        bias.first.as<T>(), bias.stride, out.as<T>(), out.row_stride, out.cols, x.cols, scale, accumulate);
  };
  packs(x, kPack<T>) && packs_each(weight, kPack<T>) ? run.template operator()<kPack<T>>()
                                                     : run.template operator()<1>();
}

}  // namespace

void launch(const ExpertsForward& args, cudaStream_t stream) {
  if (args.rows.most == 0 || args.rows.experts == 0) return;
  visit_elements(args.x.dtype, [&](auto element) {
    launch_rows<decltype(element), true>(args.rows, args.x, args.weight, args.bias, args.out, args.scale,
                                         args.accumulate, stream);
  });
  check_launch();
}

void launch(const ExpertsBackwardInput& args, cudaStream_t stream) {
  if (args.rows.most == 0 || args.rows.experts == 0) return;
  visit_elements(args.grad_out.dtype, [&](auto element) {
    launch_rows<decltype(element), false>(args.rows, args.grad_out, args.weight, {}, args.grad_x, args.scale,
                                          args.accumulate, stream);
  });
  check_launch();
}

void launch(const ExpertsBackwardWeight& args, cudaStream_t stream) {
  check_experts(args.rows);
  if (args.rows.experts == 0) return;
  const View& grad = args.grad_weight.first;
  const dim3 grid(column_tiles(grad.rows), column_tiles(grad.cols), static_cast<unsigned>(args.rows.experts));
  visit_elements(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [&]<int kVec>() {
      weight_kernel<T, kVec><<<grid, kThreads, 0, stream>>>(args.rows.begin, args.rows.first(), args.grad_out.as<T>(),
                                                            args.grad_out.row_stride, args.x.as<T>(), args.x.row_stride,
                                                            grad.as<float>(), grad.row_stride, args.grad_weight.stride,
                                                            grad.rows, grad.cols, args.accumulate, args.scale);
    };
    packs(args.x, kPack<T>) && packs(args.grad_out, kPack<T>) ? run.template operator()<kPack<T>>()
                                                              : run.template operator()<1>();
  });
  check_launch();
}

void launch_experts_bias(const ExpertsBackwardWeight& args, cudaStream_t stream) {
  check_experts(args.rows);
  if (args.rows.experts == 0) return;
  const dim3 grid(grid_size(ceil_div(args.grad_out.cols, 32)), static_cast<unsigned>(args.rows.experts));
  visit_elements(args.grad_out.dtype, [&](auto element) {
    using T = decltype(element);
    bias_kernel<T><<<grid, dim3(32, kBiasRows), 0, stream>>>(
        args.rows.begin, args.rows.first(), args.grad_out.as<T>(), args.grad_out.row_stride, args.grad_out.cols,
        args.grad_bias.first.as<float>(), args.grad_bias.stride, args.accumulate);
  });
  check_launch();
}

void launch_zero_unused(const ExpertsBackwardWeight& args, cudaStream_t stream) {
  check_experts(args.rows);
  if (args.rows.experts == 0) return;
  const View& grad = args.grad_weight.first;
  const dim3 grid(64, static_cast<unsigned>(args.rows.experts));
  zero_unused_kernel<<<grid, 256, 0, stream>>>(args.rows.begin, grad.as<float>(), grad.row_stride,
                                               args.grad_weight.stride, grad.rows, grad.cols);
  check_launch();
}

}  // namespace megatrain
