#include "megatrain/ops/linear.h"

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

constexpr int64_t kTileRows = 64;
constexpr int64_t kTileCols = 256;
constexpr int64_t kTileDepth = 512;

// out = scale op(a) op(b) + bias + residual
struct TiledMatmul {
  View a;
  bool transpose_a;
  View b;
  bool transpose_b;
  View bias;      // (out.cols) or empty
  View residual;  // like out, or empty; may alias out
  View out;
  float scale;
};

// A tile of the output has one owner, which walks the whole depth in steps of kTileDepth. If the rows of `a` are the
// output's rows, the last tile is padded with zero rows, so a row's bits do not depend on the number of rows.
void compute_tile(const Context& context, const TiledMatmul& args, int64_t row, int64_t col) {
  thread_local std::vector<float> a_scratch, b_scratch, c_scratch;
  const int64_t rows = std::min(kTileRows, args.out.rows - row);
  const int64_t cols = std::min(kTileCols, args.out.cols - col);
  const int64_t depth = args.transpose_a ? args.a.rows : args.a.cols;
  const int64_t m = args.transpose_a ? rows : kTileRows;
  float* c = grown(c_scratch, kTileRows * kTileCols);
  if (depth == 0) std::fill(c, c + m * cols, 0.0f);
  for (int64_t first = 0; first < depth; first += kTileDepth) {
    const int64_t k = std::min(kTileDepth, depth - first);
    const Tile a = args.transpose_a ? read_tile(args.a, first, k, 0, row, rows, a_scratch)
                                    : read_tile(args.a, row, rows, kTileRows, first, k, a_scratch);
    const Tile b = args.transpose_b ? read_tile(args.b, col, cols, 0, first, k, b_scratch)
                                    : read_tile(args.b, first, k, 0, col, cols, b_scratch);
    context.matmul({.m = m,
                    .n = cols,
                    .k = k,
                    .a = a,
                    .transpose_a = args.transpose_a,
                    .b = b,
                    .transpose_b = args.transpose_b,
                    .c = c,
                    .c_stride = cols,
                    .accumulate = first > 0});
  }
  Chunk buffer;
  for (int64_t r = 0; r < rows; ++r) {
    float* sum = c + r * cols;
    for (int64_t i = 0; args.scale != 1 && i < cols; ++i) sum[i] *= args.scale;
    if (!args.bias.empty()) {
      const float* bias = read(args.bias, 0, col, cols, buffer.data());
      for (int64_t i = 0; i < cols; ++i) sum[i] += bias[i];
    }
    if (!args.residual.empty()) {
      const float* residual = read(args.residual, row + r, col, cols, buffer.data());
      for (int64_t i = 0; i < cols; ++i) sum[i] += residual[i];
    }
    narrow(sum, args.out, row + r, col, cols);
  }
}

void tiled_matmul(const Context& context, const TiledMatmul& args) {
  static_assert(kTileCols <= kChunk);
  check_dtype(args.a);
  check_dtype(args.b);
  check_dtype(args.out);
  const int64_t down = ceil_div(args.out.rows, kTileRows);
  const int64_t across = ceil_div(args.out.cols, kTileCols);
  context.team.parallel_for(down * across, [&](int64_t index) {
    compute_tile(context, args, index % down * kTileRows, index / down * kTileCols);
  });
}

void bias_gradient(const Context& context, const LinearBackwardWeight& args) {
  constexpr int64_t kColumns = 32;
  const int64_t size = args.grad_out.cols;
  context.team.parallel_for(ceil_div(size, kColumns), [&](int64_t block) {
    const int64_t begin = block * kColumns;
    const int64_t count = std::min(kColumns, size - begin);
    float buffer[kColumns];
    double sum[kColumns] = {};
    for (int64_t row = 0; row < args.grad_out.rows; ++row) {
      const float* grad = read(args.grad_out, row, begin, count, buffer);
      for (int64_t c = 0; c < count; ++c) sum[c] += static_cast<double>(grad[c]);
    }
    float* bias = args.grad_bias.as<float>() + begin;
    for (int64_t c = 0; c < count; ++c) bias[c] = static_cast<float>(args.accumulate ? bias[c] + sum[c] : sum[c]);
  });
}

}  // namespace

void linear_forward(const Context& context, const LinearForward& args) {
  ensure(args.x.rows == args.out.rows && args.x.cols == args.weight.cols && args.weight.rows == args.out.cols,
         "linear_forward: (T, K) times (N, K) transposed gives (T, N)");
  ensure(args.bias.empty() || args.scale == 1, "a scaled matmul has no bias");
  tiled_matmul(context, {.a = args.x,
                         .transpose_a = false,
                         .b = args.weight,
                         .transpose_b = true,
                         .bias = args.bias,
                         .residual = args.residual,
                         .out = args.out,
                         .scale = args.scale});
}

void linear_backward_input(const Context& context, const LinearBackwardInput& args) {
  ensure(args.grad_out.rows == args.grad_x.rows && args.grad_out.cols == args.weight.rows &&
             args.weight.cols == args.grad_x.cols,
         "linear_backward_input: (T, N) times (N, K) gives (T, K)");
  tiled_matmul(context, {.a = args.grad_out,
                         .transpose_a = false,
                         .b = args.weight,
                         .transpose_b = false,
                         .bias = {},
                         .residual = args.accumulate ? args.grad_x : View{},
                         .out = args.grad_x,
                         .scale = args.scale});
}

void linear_backward_weight(const Context& context, const LinearBackwardWeight& args) {
  ensure(args.grad_bias.empty() || args.scale == 1, "a scaled matmul has no bias");
  if (!args.grad_bias.empty()) bias_gradient(context, args);
  if (args.grad_weight.empty()) return;
  ensure(args.grad_out.rows == args.x.rows && args.grad_out.cols == args.grad_weight.rows &&
             args.x.cols == args.grad_weight.cols && args.grad_weight.dtype == DType::f32,
         "linear_backward_weight: (T, N) transposed times (T, K) gives (N, K) in fp32");
  tiled_matmul(context, {.a = args.grad_out,
                         .transpose_a = true,
                         .b = args.x,
                         .transpose_b = false,
                         .bias = {},
                         .residual = args.accumulate ? args.grad_weight : View{},
                         .out = args.grad_weight,
                         .scale = args.scale});
}

}  // namespace megatrain::cpu
