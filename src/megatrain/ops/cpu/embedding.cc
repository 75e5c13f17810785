#include <cstring>

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

void embedding_forward(const Context& context, const EmbeddingForward& args) {
  const View& table = args.table;
  const View& out = args.out;
  ensure(table.dtype == out.dtype && table.cols == out.cols, "embedding rows leave as long as they lie in the table");
  const int64_t element_bytes = dtype_bytes(table.dtype);
  const auto row_of = [&](const View& view, int64_t row) {
    return static_cast<std::byte*>(view.data) + row * view.row_stride * element_bytes;
  };
  if (args.scale != 1) {
    check_dtype(table);
    for_rows(context.team, out.rows, out.cols, [&](int64_t t) {
      if (args.index[t] < 0) return;
      for_chunks(out.cols, [&](int64_t begin, int64_t count) {
        Chunk row;
        widen(table, args.index[t], begin, count, row.data());
        for (int64_t i = 0; i < count; ++i) row[i] *= args.scale;
        narrow(row.data(), out, t, begin, count);
      });
    });
    return;
  }
  for_rows(context.team, out.rows, out.cols, [&](int64_t t) {
    if (args.index[t] < 0) return;
    std::memcpy(row_of(out, t), row_of(table, args.index[t]), static_cast<size_t>(out.cols * element_bytes));
  });
}

void embedding_backward(const Context& context, const EmbeddingBackward& args) {
  check_dtype(args.grad_out);
  ensure(args.grad.dtype == DType::f32, "the embedding's gradient accumulates in fp32");
  const int64_t pieces = ceil_div(args.grad.cols, kChunk);
  for_rows(context.team, args.segments * pieces, kChunk, [&](int64_t index) {
    const int64_t u = index / pieces;
    const int64_t col = index % pieces * kChunk;
    const int64_t count = std::min(kChunk, args.grad.cols - col);
    Chunk buffer, sum;
    float* total = element<float>(args.grad, args.row[u], col);
    std::copy(total, total + count, sum.data());
    for (int64_t i = args.begin[u]; i < args.begin[u + 1]; ++i) {
      const float* grad_out = read(args.grad_out, args.order[i], col, count, buffer.data());
      for (int64_t c = 0; c < count; ++c) sum[c] += grad_out[c] * args.scale;
    }
    std::copy(sum.data(), sum.data() + count, total);
  });
}

}  // namespace megatrain::cpu
