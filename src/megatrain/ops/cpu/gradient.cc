#include "megatrain/ops/gradient.h"

#include <atomic>

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

void finish_gradient(const Context& context, const FinishGradient& args) {
  check_dtype(args.out);
  ensure(args.grad.dtype == DType::f32 && args.grad.contiguous() && args.out.contiguous() &&
             args.grad.elements() == args.out.elements(),
         "a gradient is finished as one contiguous run of fp32");
  const int64_t size = args.grad.elements();
  const View out = vector(args.out.data, args.out.dtype, size);
  const int64_t blocks = ceil_div(size, kNormBlock);
  context.team.parallel_for(blocks, [&](int64_t block) {
    const int64_t first = block * kNormBlock;
    double squares = 0;
    for_chunks(std::min(kNormBlock, size - first), [&](int64_t begin, int64_t count) {
      Chunk rounded;
      narrow(args.grad.as<float>() + first + begin, out, 0, first + begin, count);
      const float* x = read(out, 0, first + begin, count, rounded.data());
      squares += sum_of(count, [&](int64_t i) { return static_cast<double>(x[i]) * x[i]; });
    });
    args.partials[block] = squares;
  });
  double sum = 0;
  for (int64_t block = 0; block < blocks; ++block) sum += args.partials[block];
  *args.sum_of_squares = sum;
}

void sum_losses(const Context&, const SumLosses& args) {
  double loss = 0;
  int64_t correct = 0;
  for (int64_t t = 0; t < args.tokens; ++t) {
    loss += static_cast<double>(args.loss[t]);
    correct += args.correct[t];
  }
  *args.loss_sum = loss;
  *args.correct_sum = correct;
}

void adamw(const Context& context, const AdamW& args, int32_t* finite) {
  constexpr int64_t kBlock = 65536;
  const Simd simd = best_simd();
  const auto advance = [](auto* pointer, int64_t by) { return pointer ? pointer + by : nullptr; };
  std::atomic<bool> all_finite{true};
  context.team.parallel_for(ceil_div(args.count, kBlock), [&](int64_t block) {
    const int64_t first = block * kBlock;
    AdamW part = args;
    part.count = std::min(kBlock, args.count - first);
    part.grad_bf16 = advance(args.grad_bf16, first);
    part.grad_f32 = advance(args.grad_f32, first);
    part.m = args.m + first;
    part.v = args.v + first;
    part.weight = advance(args.weight, first);
    part.low = advance(args.low, first);
    part.master = advance(args.master, first);
    if (!adamw_cpu(part, simd)) all_finite.store(false, std::memory_order_relaxed);
  });
  if (!all_finite.load(std::memory_order_relaxed)) *finite = 0;
}

}  // namespace megatrain::cpu
