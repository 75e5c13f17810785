#include "megatrain/ops/columns.h"

#include <utility>

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

namespace {

template <class T>
void move(const Context& context, const MoveColumns& args) {
  for_rows(context.team, args.narrow.rows, args.narrow.cols, [&](int64_t t) {
    T* wide = args.wide.as<T>() + t * args.wide.row_stride;
    T* narrow = args.narrow.as<T>() + t * args.narrow.row_stride;
    for (int64_t j = 0; j < args.narrow.cols; ++j) {
      T& at = wide[args.columns[j]];
      if (args.take)
        narrow[j] = std::exchange(at, T{});
      else
        at = narrow[j];
    }
  });
}

}  // namespace

void move_columns(const Context& context, const MoveColumns& args) {
  check_dtype(args.wide);
  ensure(args.wide.dtype == args.narrow.dtype && args.wide.rows == args.narrow.rows,
         "columns keep their dtype and length");
  if (args.wide.dtype == DType::bf16)
    move<bf16>(context, args);
  else
    move<float>(context, args);
}

}  // namespace megatrain::cpu
