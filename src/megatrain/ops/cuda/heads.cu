// One block per row.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kMostThreads = 256;

// Where a head's columns begin.
struct HeadColumns {
  int64_t begin, step, row_stride;
};

// A thread moves kVec elements. `width` and `zeros` are multiples of kVec.
template <class T, int kVec>
__global__ void move_heads_kernel(const T* from, HeadColumns from_columns, T* to, HeadColumns to_columns, int64_t heads,
                                  int64_t width, int64_t zeros, bool add) {
  const T* from_row = from + blockIdx.x * from_columns.row_stride + from_columns.begin;
  T* to_row = to + blockIdx.x * to_columns.row_stride + to_columns.begin;
  const int64_t both = width + zeros;
  for (int64_t i = threadIdx.x * kVec; i < heads * both; i += blockDim.x * kVec) {
    const int64_t head = i / both, at = i % both;
    float values[kVec] = {};
    if (at < width) load<T, kVec>(from_row + head * from_columns.step + at, values);
    T* target = to_row + head * to_columns.step + at;
    if (add) {
      float sum[kVec];
      load<T, kVec>(target, sum);
#pragma unroll
      for (int j = 0; j < kVec; ++j) values[j] += sum[j];
    }
    store<T, kVec>(target, values);
  }
}

template <class T, int kVec>
__global__ void sum_heads_kernel(const T* from, HeadColumns from_columns, T* to, HeadColumns to_columns, int64_t heads,
                                 int64_t width) {
  const T* from_row = from + blockIdx.x * from_columns.row_stride + from_columns.begin;
  T* to_row = to + blockIdx.x * to_columns.row_stride + to_columns.begin;
  for (int64_t i = threadIdx.x * kVec; i < width; i += blockDim.x * kVec) {
    float sum[kVec] = {};
    for (int64_t head = 0; head < heads; ++head) {
      float values[kVec];
      load<T, kVec>(from_row + head * from_columns.step + i, values);
#pragma unroll
      for (int j = 0; j < kVec; ++j) sum[j] += values[j];
    }
    store<T, kVec>(to_row + i, sum);
  }
}

// Whether every head of a view starts at a whole pack.
bool heads_pack(const View& view, int64_t begin, int64_t step, int pack) {
  View rows = view;
  rows.cols = pack;
  return packs(rows, pack) && begin % pack == 0 && step % pack == 0;
}

}  // namespace

void launch(const MoveHeads& args, cudaStream_t stream) {
  if (args.to.rows == 0 || args.heads == 0 || args.width == 0) return;
  ensure(args.from.dtype == args.to.dtype && args.from.rows == args.to.rows, "heads keep their dtype and rows");
  ensure(!args.add || (args.to_step > 0 && args.zeros == 0), "heads are added one by one");
  visit_elements(args.to.dtype, [&](auto element) {
    using T = decltype(element);
    const HeadColumns from{args.from_begin, args.from_step, args.from.row_stride};
    const HeadColumns to{args.to_begin, args.to_step, args.to.row_stride};
    const auto run = [&]<int kVec>() {
      if (args.to_step == 0) {
        sum_heads_kernel<T, kVec>
            <<<grid_size(args.to.rows), row_threads(ceil_div(args.width, kVec), kMostThreads), 0, stream>>>(
                args.from.as<T>(), from, args.to.as<T>(), to, args.heads, args.width);
        return;
      }
      const int64_t items = args.heads * ceil_div(args.width + args.zeros, kVec);
      move_heads_kernel<T, kVec><<<grid_size(args.to.rows), row_threads(items, kMostThreads), 0, stream>>>(
          args.from.as<T>(), from, args.to.as<T>(), to, args.heads, args.width, args.zeros, args.add);
    };
    constexpr int kWhole = kPack<T>;
    if (args.width % kWhole == 0 && args.zeros % kWhole == 0 &&
        heads_pack(args.from, args.from_begin, args.from_step, kWhole) &&
        heads_pack(args.to, args.to_begin, args.to_step, kWhole)) {
      run.template operator()<kWhole>();
    } else {
      run.template operator()<1>();
    }
  });
  check_launch();
}

}  // namespace megatrain
