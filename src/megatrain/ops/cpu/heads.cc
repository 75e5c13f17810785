#include "megatrain/ops/heads.h"

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

namespace {

// The heads' sum, for one row.
void sum_heads(const MoveHeads& a, int64_t row) {
  for_chunks(a.width, [&](int64_t begin, int64_t count) {
    Chunk sum{}, buffer;
    for (int64_t head = 0; head < a.heads; ++head) {
      const float* from = read(a.from, row, a.from_begin + head * a.from_step + begin, count, buffer.data());
      for (int64_t i = 0; i < count; ++i) sum[i] += from[i];
    }
    narrow(sum.data(), a.to, row, a.to_begin + begin, count);
  });
}

void add_head(const MoveHeads& a, int64_t row, int64_t head) {
  const int64_t to = a.to_begin + head * a.to_step, from = a.from_begin + head * a.from_step;
  for_chunks(a.width, [&](int64_t begin, int64_t count) {
    Chunk sum, buffer;
    widen(a.to, row, to + begin, count, sum.data());
    const float* more = read(a.from, row, from + begin, count, buffer.data());
    for (int64_t i = 0; i < count; ++i) sum[i] += more[i];
    narrow(sum.data(), a.to, row, to + begin, count);
  });
}

}  // namespace

void move_heads(const Context& context, const MoveHeads& args) {
  check_dtype(args.from);
  ensure(args.from.dtype == args.to.dtype && args.from.rows == args.to.rows, "heads keep their dtype and rows");
  ensure(!args.add || (args.to_step > 0 && args.zeros == 0), "heads are added one by one");
  const auto element_bytes = static_cast<size_t>(dtype_bytes(args.from.dtype));
  for_rows(context.team, args.to.rows, args.heads * args.width, [&](int64_t row) {
    if (args.to_step == 0) return sum_heads(args, row);
    const auto at = [&](const View& view, int64_t col) {
      return static_cast<std::byte*>(view.data) + static_cast<size_t>(row * view.row_stride + col) * element_bytes;
    };
    for (int64_t head = 0; head < args.heads; ++head) {
      if (args.add) {
        add_head(args, row, head);
        continue;
      }
      std::byte* to = at(args.to, args.to_begin + head * args.to_step);
      const size_t bytes = static_cast<size_t>(args.width) * element_bytes;
      std::memcpy(to, at(args.from, args.from_begin + head * args.from_step), bytes);
      std::memset(to + bytes, 0, static_cast<size_t>(args.zeros) * element_bytes);
    }
  });
}

}  // namespace megatrain::cpu
