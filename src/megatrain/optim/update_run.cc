#include "megatrain/optim/update_run.h"

namespace megatrain {

bool update_run(const LayerRecord& record, const AdamWScalars& scalars, const std::byte* gradient, int64_t begin,
                int64_t count) {
  static const Simd simd = best_simd();
  const StatePlanes at = record.planes();
  AdamW args{.scalars = scalars, .count = count, .m = at.m + begin, .v = at.v + begin};
  if (record.dtype() == DType::bf16) {
    args.grad_bf16 = reinterpret_cast<const bf16*>(gradient);
    args.weight = at.weight + begin;
    args.low = at.low + begin;
  } else {
    args.grad_f32 = reinterpret_cast<const float*>(gradient);
    args.master = at.master + begin;
  }
  return adamw_cpu(args, simd);
}

}  // namespace megatrain
