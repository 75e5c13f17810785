#include "megatrain/optim/update_run.h"

namespace megatrain {

bool update_run(const StatePlanes& at, const TensorSpec& tensor, const AdamWScalars& scalars, const std::byte* gradient,
                int64_t begin, int64_t count) {
  static const Simd simd = best_simd();
  const int64_t weight = tensor.offset + begin;
  AdamW args{.scalars = scalars,
             .count = count,
             .m = at.first_moments(tensor, begin),
             .v = at.second_moments(tensor, begin),
             .coded = at.coded(tensor, begin)};
  if (at.weight) {
    args.grad_bf16 = reinterpret_cast<const bf16*>(gradient);
    args.weight = at.weight + weight;
    args.low = tensor.has_low_bits() ? at.low + tensor.low_offset + begin : nullptr;
  } else {
    args.grad_f32 = reinterpret_cast<const float*>(gradient);
    args.master = at.master + weight;
  }
  return adamw_cpu(args, simd);
}

}  // namespace megatrain
