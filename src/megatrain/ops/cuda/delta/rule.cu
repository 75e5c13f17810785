// The delta rule over the segments of a micro-batch (ops/delta_segments.h).
#include <algorithm>

#include "megatrain/ops/cuda/delta/narrow_kernels.h"
#include "megatrain/ops/cuda/delta/segment_kernels.h"
#include "megatrain/ops/cuda/delta/tiles.cuh"
#include "megatrain/ops/cuda/delta/launch.h"

namespace megatrain {

namespace {

// The scratch of one call: matrices of a segment's chunks, then the states between segments.
class SegmentScratch {
 public:
  SegmentScratch(const DeltaRuleShape& shape, void* memory)
      : sizes_(shape), heads_(shape.value_heads), chunks_(delta_segment_chunks(shape)) {
    next_ = static_cast<float*>(memory);
    slots_ = array(delta_slots(shape) * sizes_.state);
  }

  // Forward's part, then backward's.
  void place(DeltaKernelArgs& args, bool backward) {
    args.w = array(chunks_ * sizes_.keys);
    args.d = array(chunks_ * sizes_.values);
    args.states = array(chunks_ * sizes_.state);
    if (!backward) return;
    args.inverse = array(chunks_ * sizes_.pairs);
    args.grad_keys = array(chunks_ * sizes_.keys);
    args.grad_d = array(chunks_ * sizes_.values);
    args.grad_states = array(chunks_ * sizes_.state);
  }
  float* slot(int64_t index) const { return index < 0 ? nullptr : slots_ + index * sizes_.state * heads_; }

 private:
  float* array(int64_t count_of_head) {
    float* const made = next_;
    next_ += count_of_head * heads_;
    return made;
  }

  DeltaScratch sizes_;
  int64_t heads_, chunks_;
  float* next_;
  float* slots_;
};

bool packs_heads(const View& view, int64_t size) {
  const int pack = static_cast<int>(16 / dtype_bytes(view.dtype));
  return packs(view, pack) && size % pack == 0;
}

template <class Args>
DeltaKernelArgs kernel_args(const Args& args) {
  const DeltaRuleShape& shape = args.shape;
  ensure(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0, "value heads share key heads evenly");
  ensure(shape.key_dim % 16 == 0 && shape.key_dim <= kMostDeltaDim && shape.value_dim % 16 == 0 &&
             shape.value_dim <= kMostDeltaDim,
         "a delta head has a multiple of 16 elements, at most 256");
  ensure(args.g.dtype == DType::f32 && args.beta.dtype == DType::f32, "gates are fp32");
  ensure(args.k.dtype == args.q.dtype && args.v.dtype == args.q.dtype, "the delta rule's tensors share a dtype");
  DeltaKernelArgs made{};
  made.heads = static_cast<int>(shape.value_heads);
  made.group = static_cast<int>(shape.value_heads / shape.key_heads);
  made.key_dim = static_cast<int>(shape.key_dim);
  made.value_dim = static_cast<int>(shape.value_dim);
  made.packed =
      packs_heads(args.q, shape.key_dim) && packs_heads(args.k, shape.key_dim) && packs_heads(args.v, shape.value_dim);
  made.q = delta_rows(args.q);
  made.k = delta_rows(args.k);
  made.v = delta_rows(args.v);
  made.g = delta_rows(args.g);
  made.beta = delta_rows(args.beta);
  return made;
}

void set_segment(DeltaKernelArgs& args, const ChunkSegment& segment) {
  args.chunks = static_cast<int>(segment.chunks.size());
  std::copy(segment.chunks.begin(), segment.chunks.end(), args.places);
}

}  // namespace

void launch(const DeltaRuleForward& args, void* scratch, cudaStream_t stream) {
  if (args.shape.tokens == 0) return;
  ensure(args.out.dtype == args.q.dtype, "the delta rule's tensors share a dtype");
  DeltaKernelArgs call = kernel_args(args);
  call.out = delta_rows(args.out);
  call.narrow = args.q.dtype == DType::bf16 && packs_heads(args.out, args.shape.value_dim) && delta_is_narrow(call);
  SegmentScratch memory(args.shape, scratch);
  memory.place(call, false);
  for (const ChunkSegment& segment : delta_segments(args.shape, args.documents)) {
    set_segment(call, segment);
    call.before = memory.slot(segment.slot_before);
    call.after = memory.slot(segment.slot_after);
    launch_delta_prepare(call, args.q.dtype, stream);
    launch_delta_scan(call, true, args.q.dtype, stream);
    launch_delta_output(call, args.q.dtype, stream);
  }
}

// Forward through the segments for the states between them, then back through the segments. A slot's state is read for
// the last time before its gradient replaces it.
void launch(const DeltaRuleBackward& args, void* scratch, cudaStream_t stream) {
  if (args.shape.tokens == 0) return;
  for (const View* view : {&args.grad_out, &args.grad_q, &args.grad_k, &args.grad_v})
    ensure(view->dtype == args.q.dtype, "the delta rule's tensors share a dtype");
  ensure(args.grad_g.dtype == DType::f32 && args.grad_beta.dtype == DType::f32, "gradients of gates are fp32");
  const DType dtype = args.q.dtype;
  DeltaKernelArgs call = kernel_args(args);
  call.packed = call.packed && packs_heads(args.grad_out, args.shape.value_dim);
  call.narrow = dtype == DType::bf16 && packs_heads(args.grad_q, args.shape.key_dim) &&
                packs_heads(args.grad_k, args.shape.key_dim) && packs_heads(args.grad_v, args.shape.value_dim) &&
                delta_is_narrow(call);
  call.grad_out = delta_rows(args.grad_out);
  call.grad_q = delta_rows(args.grad_q);
  call.grad_k = delta_rows(args.grad_k);
  call.grad_v = delta_rows(args.grad_v);
  call.grad_g = delta_rows(args.grad_g);
  call.grad_beta = delta_rows(args.grad_beta);
  SegmentScratch memory(args.shape, scratch);
  memory.place(call, true);
  const std::vector<ChunkSegment> segments = delta_segments(args.shape, args.documents);
  for (const ChunkSegment& segment : segments) {
    if (segment.slot_after < 0) continue;
    DeltaKernelArgs ahead = call;
    set_segment(ahead, segment);
    ahead.inverse = nullptr;
    ahead.before = memory.slot(segment.slot_before);
    ahead.after = memory.slot(segment.slot_after);
    launch_delta_prepare(ahead, dtype, stream);
    launch_delta_scan(ahead, false, dtype, stream);
  }
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    set_segment(call, *segment);
    call.before = memory.slot(segment->slot_before);
    call.after = nullptr;
    launch_delta_prepare(call, dtype, stream);
    launch_delta_scan(call, true, dtype, stream);
    launch_delta_output_back(call, dtype, stream);
    call.before = memory.slot(segment->slot_after);
    call.after = memory.slot(segment->slot_before);
    launch_delta_scan_back(call, dtype, stream);
    launch_delta_gradient(call, dtype, stream);
    launch_delta_key_gradient(call, dtype, stream);
  }
}

}  // namespace megatrain
