#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

namespace {

void rotate_pairs(const Rope& args, int64_t row, int64_t first, const float* cos, const float* sin, float sign) {
  static_assert(kChunk % 2 == 0);
  for_chunks(args.rotary_dim, [&](int64_t begin, int64_t count) {
    Chunk x;
    widen(args.x, row, first + begin, count, x.data());
    for (int64_t i = 0; i < count; i += 2) {
      const float c = cos[(begin + i) / 2], s = sign * sin[(begin + i) / 2];
      const float low = x[i], high = x[i + 1];
      x[i] = low * c - high * s;
      x[i + 1] = high * c + low * s;
    }
    narrow(x.data(), args.x, row, first + begin, count);
  });
}

}  // namespace

void rope(const Context& context, const Rope& args) {
  check_dtype(args.x);
  const int64_t half = args.rotary_dim / 2;
  ensure(args.x.cols == args.heads * args.head_dim, "RoPE takes whole heads");
  ensure(args.rotary_dim > 0 && args.rotary_dim % 2 == 0 && args.rotary_dim <= args.head_dim,
         "RoPE turns an even number of a head's elements");
  const float sign = args.backward ? -1.0f : 1.0f;
  for_rows(context.team, args.x.rows, args.x.cols, [&](int64_t row) {
    const float* cos = args.cos + args.positions[row] * half;
    const float* sin = args.sin + args.positions[row] * half;
    for (int64_t head = 0; head < args.heads; ++head) {
      const int64_t first = head * args.head_dim;
      if (args.pairs) {
        rotate_pairs(args, row, first, cos, sin, sign);
        continue;
      }
      for_chunks(half, [&](int64_t begin, int64_t count) {
        Chunk low, high, out_low, out_high;
        widen(args.x, row, first + begin, count, low.data());
        widen(args.x, row, first + half + begin, count, high.data());
        for (int64_t i = 0; i < count; ++i) {
          const float c = cos[begin + i];
          const float s = sign * sin[begin + i];
          out_low[i] = low[i] * c - high[i] * s;
          out_high[i] = high[i] * c + low[i] * s;
        }
        narrow(out_low.data(), args.x, row, first + begin, count);
        narrow(out_high.data(), args.x, row, first + half + begin, count);
      });
    }
  });
}

}  // namespace megatrain::cpu
