// AdamW as an op: blocks of a plane shared out over the team, the gradient rounded as it is read.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

namespace {

// Elements [first, first + count), all with a gradient or none.
bool update_run(const AdamWUpdate& args, const AdamWScalars& scalars, int64_t first, int64_t count, const float* grad) {
  const auto at = [first](auto* plane) { return plane ? plane + first : nullptr; };
  AdamW part{.scalars = scalars,
             .count = count,
             .m = args.m + first,
             .v = args.v + first,
             .weight = at(args.weight),
             .low = at(args.low),
             .master = at(args.master)};
  thread_local std::vector<bf16> rounded;
  if (grad && args.weight) {
    rounded.resize(static_cast<size_t>(count));
    std::transform(grad, grad + count, rounded.begin(), [](float x) { return to_bf16(x); });
    part.grad_bf16 = rounded.data();
  } else {
    part.grad_f32 = grad;
  }
  return adamw_cpu(part, best_simd());
}

}  // namespace

void adamw(const Context& context, const AdamWUpdate& args) {
  constexpr int64_t kBlock = 65536;
  AdamWScalars scalars = args.scalars;
  scalars.clip = *args.clip;
  if (std::isnan(scalars.clip)) return;
  std::atomic<bool> finite{true};
  const auto update = [&](int64_t first, int64_t count, const float* grad) {
    if (!update_run(args, scalars, first, count, grad)) finite.store(false, std::memory_order_relaxed);
  };
  if (args.rows) {
    context.team.parallel_for(args.count / args.cols, [&](int64_t row) {
      const int32_t* end = args.rows + args.row_count;
      const int32_t* found = std::lower_bound(args.rows, end, static_cast<int32_t>(row));
      const bool touched = found != end && *found == row;
      update(row * args.cols, args.cols, touched ? args.grad + (found - args.rows) * args.cols : nullptr);
    });
  } else {
    context.team.parallel_for(ceil_div(args.count, kBlock), [&](int64_t block) {
      const int64_t first = block * kBlock;
      update(first, std::min(kBlock, args.count - first), args.grad + first);
    });
  }
  if (!finite.load(std::memory_order_relaxed) && *args.not_finite == 0) *args.not_finite = args.mark;
}

}  // namespace megatrain::cpu
