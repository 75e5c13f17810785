#include "megatrain/ops/gradient.h"

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

void finish_gradient(const Context& context, const FinishGradient& args) {
  ensure(args.grad.dtype == DType::f32 && args.grad.contiguous() &&
             (args.out.empty() ||
              (args.out.dtype == args.dtype && args.out.contiguous() && args.grad.elements() == args.out.elements())),
         "a gradient is finished as one contiguous run of fp32");
  ensure(args.parts > 0 && args.grad.elements() % args.parts == 0, "the parts of a gradient are of equal size");
  const int64_t size = args.part_elements(), blocks = args.part_blocks();
  context.team.parallel_for(args.parts * blocks, [&](int64_t block) {
    const int64_t within = block % blocks * kNormBlock;  // offset in the part
    const int64_t first = block / blocks * size + within;
    double squares = 0;
    for_chunks(std::min(kNormBlock, size - within), [&](int64_t begin, int64_t count) {
      Chunk stored, rounded;
      const View out =
          vector(args.out.empty() ? reinterpret_cast<std::byte*>(stored.data())
                                  : static_cast<std::byte*>(args.out.data) + (first + begin) * dtype_bytes(args.dtype),
                 args.dtype, count);
      narrow(args.grad.as<float>() + first + begin, out, 0, 0, count);
      const float* x = read(out, 0, 0, count, rounded.data());
      squares += sum_of(count, [&](int64_t i) { return static_cast<double>(x[i]) * x[i]; });
    });
    args.partials[block] = squares;
  });
  for (int64_t part = 0; part < args.parts; ++part) {
    double sum = 0;
    for (int64_t block = 0; block < blocks; ++block) sum += args.partials[part * blocks + block];
    args.sums_of_squares[part] = sum;
  }
}

void clip_factor(const Context&, const ClipFactor& args) {
  double sum = 0;
  for (int64_t i = 0; i < args.count; ++i) sum += args.squares[i];
  *args.factor = static_cast<float>(clip_factor_of(sum, args.clip));
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

}  // namespace megatrain::cpu
