#include "megatrain/ops/experts.h"

#include "megatrain/ops/cpu/expert_rows.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

void gather_rows(const Context& context, const GatherRows& args) {
  ensure(args.x.dtype == args.out.dtype && args.x.cols == args.out.cols, "gathered rows are copies");
  check(args.rows);
  const size_t bytes = static_cast<size_t>(args.x.cols * dtype_bytes(args.x.dtype));
  const int32_t* pairs = args.pair_of_row + args.rows.begin[0];
  for_rows(context.team, count_rows(args.rows), args.x.cols, [&](int64_t row) {
    std::memcpy(args.out.slice_rows(row, 1).data, args.x.slice_rows(pairs[row] / args.choices, 1).data, bytes);
  });
}

void experts_forward(const Context& context, const ExpertsForward& args) {
  check(args.rows);
  for (int64_t i = 0; i < args.rows.experts; ++i) {
    linear_forward(context, {.x = rows_of(args.rows, i, args.x),
                             .weight = weights_of(args.weight, i),
                             .bias = weights_of(args.bias, i),
                             .residual = args.accumulate ? rows_of(args.rows, i, args.out) : View{},
                             .out = rows_of(args.rows, i, args.out),
                             .scale = args.scale});
  }
}

void experts_backward_input(const Context& context, const ExpertsBackwardInput& args) {
  check(args.rows);
  for (int64_t i = 0; i < args.rows.experts; ++i) {
    linear_backward_input(context, {.grad_out = rows_of(args.rows, i, args.grad_out),
                                    .weight = weights_of(args.weight, i),
                                    .grad_x = rows_of(args.rows, i, args.grad_x),
                                    .accumulate = args.accumulate,
                                    .scale = args.scale});
  }
}

void experts_backward_weight(const Context& context, const ExpertsBackwardWeight& args) {
  check(args.rows);
  for (int64_t i = 0; i < args.rows.experts; ++i) {
    const View grad_out = rows_of(args.rows, i, args.grad_out);
    if (args.accumulate && grad_out.rows == 0) continue;
    linear_backward_weight(context, {.grad_out = grad_out,
                                     .x = rows_of(args.rows, i, args.x),
                                     .grad_weight = weights_of(args.grad_weight, i),
                                     .grad_bias = weights_of(args.grad_bias, i),
                                     .accumulate = args.accumulate,
                                     .scale = args.scale});
  }
}

void combine_rows(const Context& context, const CombineRows& args) {
  for (const View* view : {&args.x, &args.out}) check_dtype(*view);
  ensure(args.x.cols == args.out.cols && (args.from.empty() || args.from.cols == args.out.cols),
         "rows are as wide as their sum");
  check(args.rows);
  const int64_t end_expert = args.first_expert + args.rows.experts;
  const bool in_place = args.from.data == args.out.data && args.from.dtype == args.out.dtype;
  for_rows(context.team, args.out.rows, args.out.cols, [&](int64_t token) {
    thread_local std::vector<int32_t> pairs;  // of the token in this group, in the order they are added
    pairs.clear();
    for (int64_t pair = token * args.choices; pair < (token + 1) * args.choices; ++pair) {
      if (args.experts[pair] >= args.first_expert && args.experts[pair] < end_expert)
        pairs.push_back(static_cast<int32_t>(pair));
    }
    if (pairs.empty() && in_place) return;
    std::sort(pairs.begin(), pairs.end(), [&](int32_t a, int32_t b) {
      return args.descending ? args.experts[a] > args.experts[b] : args.experts[a] < args.experts[b];
    });
    for_chunks(args.out.cols, [&](int64_t begin, int64_t count) {
      Chunk sum, buffer;
      if (args.from.empty()) {
        sum.fill(0);
      } else {
        widen(args.from, token, begin, count, sum.data());
      }
      for (const int32_t pair : pairs) {
        const int64_t row = int64_t{args.row_of_pair[pair]} - args.rows.begin[0];
        const float* x = read(args.x, row, begin, count, buffer.data());
        const float weight = args.weights ? args.weights[pair] : 1.0f;
        for (int64_t i = 0; i < count; ++i) sum[i] += weight * x[i];
      }
      narrow(sum.data(), args.out, token, begin, count);
    });
  });
}

}  // namespace megatrain::cpu
