#include "megatrain/ops/dora.h"

#include <cmath>
#include <vector>

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

namespace {

constexpr int64_t kRows = 8;  // that share a widened chunk of A

// Squares of the norms of rows [first, first + count). A row's sum does not depend on the rows beside it.
void sum_squares(const DoraFactors& args, int64_t first, int64_t count, double* squares) {
  const int64_t rank = args.a.rows;
  std::vector<float> b(static_cast<size_t>(count * rank));
  for (int64_t row = 0; row < count; ++row) widen(args.b, first + row, 0, rank, b.data() + row * rank);
  for_chunks(args.weight.cols, [&](int64_t begin, int64_t size) {
    Chunk of_a, w_buffer;
    std::array<Chunk, kRows> deltas;
    for (int64_t row = 0; row < count; ++row) std::fill_n(deltas[static_cast<size_t>(row)].data(), size, 0.0f);
    for (int64_t r = 0; r < rank; ++r) {
      const float* a = read(args.a, r, begin, size, of_a.data());
      for (int64_t row = 0; row < count; ++row) {
        const float factor = b[static_cast<size_t>(row * rank + r)];
        float* delta = deltas[static_cast<size_t>(row)].data();
        for (int64_t i = 0; i < size; ++i) delta[i] += factor * a[i];
      }
    }
    for (int64_t row = 0; row < count; ++row) {
      const float* w = read(args.weight, first + row, begin, size, w_buffer.data());
      const float* delta = deltas[static_cast<size_t>(row)].data();
      squares[row] += sum_of(size, [&](int64_t i) {
        const double sum = w[i] + args.scale * delta[i];
        return sum * sum;
      });
    }
  });
}

}  // namespace

void dora_factors(const Context& context, const DoraFactors& args) {
  for (const View& view : {args.weight, args.a, args.b, args.magnitude}) check_dtype(view);
  const int64_t rows = args.weight.rows;
  ensure(args.a.cols == args.weight.cols && args.b.rows == rows && args.b.cols == args.a.rows &&
             args.magnitude.cols == rows && args.factors.cols == rows && args.factors.dtype == DType::f32,
         "DoRA's factors are (N), of weights (N, K) with (r, K) and (N, r) beside them");
  context.team.parallel_for(ceil_div(rows, kRows), [&](int64_t block) {
    const int64_t first = block * kRows, count = std::min(kRows, rows - first);
    double squares[kRows] = {};
    sum_squares(args, first, count, squares);
    float magnitude[kRows];
    widen(args.magnitude, 0, first, count, magnitude);
    for (int64_t row = 0; row < count; ++row) {
      const float norm = static_cast<float>(std::sqrt(squares[row]));
      args.factors.as<float>()[first + row] = norm > 0 ? magnitude[row] / norm : 0.0f;
      if (!args.inv_norms.empty()) args.inv_norms.as<float>()[first + row] = norm > 0 ? 1.0f / norm : 0.0f;
    }
  });
}

void scale_columns(const Context& context, const ScaleColumns& args) {
  check_dtype(args.x);
  check_dtype(args.out);
  ensure(args.x.rows == args.out.rows && args.x.cols == args.out.cols && args.factors.cols == args.x.cols &&
             args.factors.dtype == DType::f32,
         "scaling columns keeps the shape, with a factor in fp32 for each");
  for_rows(context.team, args.x.rows, args.x.cols, [&](int64_t row) {
    for_chunks(args.x.cols, [&](int64_t begin, int64_t count) {
      Chunk out, buffer;
      widen(args.x, row, begin, count, out.data());
      const float* factors = args.factors.as<float>() + begin;
      for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] *= factors[i] + args.offset;
      if (!args.times.empty()) {
        const float* times = read(args.times, row, begin, count, buffer.data());
        for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] *= times[i];
      }
      for (const View& added : {args.bias, args.residual}) {
        if (added.empty()) continue;
        const float* more = read(added, added.rows == 1 ? 0 : row, begin, count, buffer.data());
        for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] += more[i];
      }
      narrow(out.data(), args.out, row, begin, count);
    });
  });
}

}  // namespace megatrain::cpu
