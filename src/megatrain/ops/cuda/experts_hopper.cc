#include "megatrain/ops/cuda/experts_hopper.h"

#include "megatrain/base/math.h"

namespace megatrain {

namespace {

constexpr int64_t kTmaBytes = 16;

// Whether TMA can address the rows: their start and stride are aligned, and they are whole packs wide.
bool takes(const View& view) {
  const int64_t size = dtype_bytes(view.dtype);
  return reinterpret_cast<uintptr_t>(view.data) % kTmaBytes == 0 && view.row_stride * size % kTmaBytes == 0 &&
         view.cols * size % kTmaBytes == 0 && view.cols > 0;
}
bool takes(const ExpertWeights& weights) {
  return takes(weights.first) && weights.stride * dtype_bytes(weights.first.dtype) % kTmaBytes == 0;
}

bool has_rows(const ExpertRows& rows) { return rows.most > 0 && rows.experts > 0; }

}  // namespace

bool hopper_takes(const ExpertsForward& args) {
  return has_rows(args.rows) && args.x.dtype == DType::bf16 && takes(args.x) && takes(args.weight) && takes(args.out);
}

bool hopper_takes(const ExpertsBackwardInput& args) {
  return has_rows(args.rows) && args.grad_out.dtype == DType::bf16 && takes(args.grad_out) && takes(args.weight) &&
         takes(args.grad_x);
}

bool hopper_takes(const ExpertsBackwardWeight& args) {
  return has_rows(args.rows) && args.grad_out.dtype == DType::bf16 && takes(args.grad_out) && takes(args.x) &&
         takes(args.grad_weight);
}

int64_t hopper_scratch_bytes(int64_t experts, int processors) {
  return kHopperArrays * round_up(experts * kHopperMostBytes, kHopperAlign) + processors * kHopperProcessorBytes;
}

}  // namespace megatrain
