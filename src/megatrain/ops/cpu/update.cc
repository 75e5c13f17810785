// AdamW as an op: blocks of a plane are distributed over the team, and the gradient is rounded as it is read.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

namespace {

// Elements [first, first + count), either all with a gradient or all without. `block` is the first of their moment
// blocks.
bool update_run(const AdamWUpdate& args, const AdamWScalars& scalars, int64_t first, int64_t count, int64_t block,
                const float* grad) {
  const auto at = [first](auto* plane) { return plane ? plane + first : nullptr; };
  const int64_t bytes = first * moment_element_bytes(args.coded.moments);
  CodedState coded = args.coded;
  coded.first += first;
  if (coded.m_scales) {
    coded.m_scales += block;
    coded.v_scales += block;
  }
  AdamW part{.scalars = scalars,
             .count = count,
             .m = static_cast<std::byte*>(args.m) + bytes,
             .v = static_cast<std::byte*>(args.v) + bytes,
             .weight = at(args.weight),
             .low = at(args.low),
             .master = at(args.master),
             .coded = coded};
  thread_local std::vector<bf16> rounded;
  if (args.grad_bf16) {
    part.grad_bf16 = args.grad_bf16 + first;
  } else if (grad && args.weight) {
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
  constexpr int64_t kPieceElements = 65536;
  AdamWScalars scalars = args.scalars;
  scalars.clip = *args.clip;
  if (std::isnan(scalars.clip)) return;
  std::atomic<bool> finite{true};
  const auto update = [&](int64_t first, int64_t count, int64_t block, const float* grad) {
    if (!update_run(args, scalars, first, count, block, grad)) finite.store(false, std::memory_order_relaxed);
  };
  // rows that start at a block boundary are updated one by one, even if all have a gradient
  const int64_t row = args.rows ? args.cols : args.coded.row;
  if (row > 0) {
    context.team.parallel_for(args.count / row, [&](int64_t r) {
      const float* grad = args.grad ? args.grad + r * row : nullptr;
      if (args.rows) {
        const int32_t* end = args.rows + args.row_count;
        const int32_t* found = std::lower_bound(args.rows, end, static_cast<int32_t>(r));
        grad = found != end && *found == r ? args.grad + (found - args.rows) * args.cols : nullptr;
      }
      update(r * row, row, r * ceil_div(row, kStateBlock), grad);
    });
  } else {
    context.team.parallel_for(ceil_div(args.count, kPieceElements), [&](int64_t piece) {
      const int64_t first = piece * kPieceElements;
      update(first, std::min(kPieceElements, args.count - first), first / kStateBlock,
             args.grad ? args.grad + first : nullptr);
    });
  }
  if (!finite.load(std::memory_order_relaxed)) {
    int32_t none = 0;  // an update on another stream may mark it too
    std::atomic_ref<int32_t>(*args.not_finite).compare_exchange_strong(none, args.mark);
  }
}

}  // namespace megatrain::cpu
