// Learned factors: one of a whole activation, and one of each expert.
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

void scale_all(const Context& context, const ScaleAll& args) {
  check_dtype(args.x);
  check_dtype(args.out);
  ensure(args.x.rows == args.out.rows && args.x.cols == args.out.cols && args.factor.cols <= 1,
         "scaling keeps the shape and has one factor");
  float scratch = 0;
  const float factor = args.times * (args.factor.empty() ? 1 : *read(args.factor, 0, 0, 1, &scratch));
  for_rows(context.team, args.x.rows, args.x.cols, [&](int64_t row) {
    for_chunks(args.x.cols, [&](int64_t begin, int64_t count) {
      Chunk buffer;
      widen(args.x, row, begin, count, buffer.data());
      for (int64_t i = 0; i < count; ++i) buffer[static_cast<size_t>(i)] *= factor;
      narrow(buffer.data(), args.out, row, begin, count);
    });
  });
}

void scale_choices(const Context&, const ScaleChoices& args) {
  for (int64_t pair = 0; pair < args.pairs; ++pair) {
    float scratch = 0;
    args.weights[pair] = args.shares[pair] * *read(args.factors, 0, args.experts[pair], 1, &scratch);
  }
}

void scale_choices_backward(const Context& context, const ScaleChoicesBackward& args) {
  context.team.parallel_for(args.factors.cols, [&](int64_t expert) {
    float scratch = 0;
    const float factor = *read(args.factors, 0, expert, 1, &scratch);
    double sum = 0;
    for (int64_t row = args.begin[expert]; row < args.begin[expert + 1]; ++row) {
      const int32_t pair = args.pair_of_row[row];
      sum += static_cast<double>(args.grad_weights[pair]) * args.shares[pair];
      args.grad_weights[pair] *= factor;
    }
    if (args.grad_factors.empty()) return;
    float& grad = args.grad_factors.as<float>()[expert];
    grad = static_cast<float>(args.accumulate ? grad + sum : sum);
  });
}

}  // namespace megatrain::cpu
