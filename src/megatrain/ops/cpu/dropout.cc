#include "megatrain/ops/dropout.h"

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

void dropout(const Context& context, const Dropout& args) {
  check_dtype(args.x);
  check_dtype(args.out);
  ensure(args.x.rows == args.out.rows && args.x.cols == args.out.cols, "dropout keeps the shape");
  const uint32_t threshold = dropout_threshold(args.rate);
  const float scale = dropout_scale(args.rate);
  for_rows(context.team, args.x.rows, args.x.cols, [&](int64_t row) {
    const uint64_t key = mix_key(args.key, static_cast<uint64_t>(args.first_row + row));
    for_chunks(args.x.cols, [&](int64_t begin, int64_t count) {
      Chunk x, out{};
      widen(args.x, row, begin, count, x.data());
      if (args.accumulate) widen(args.out, row, begin, count, out.data());
      for (int64_t i = 0; i < count; ++i) {
        const float kept = is_dropped(key, begin + i, threshold) ? 0.0f : x[static_cast<size_t>(i)] * scale;
        out[static_cast<size_t>(i)] = args.accumulate ? out[static_cast<size_t>(i)] + kept : kept;
      }
      narrow(out.data(), args.out, row, begin, count);
    });
  });
}

}  // namespace megatrain::cpu
