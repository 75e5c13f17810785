// Mamba 2's recurrence over the segments of a micro-batch (ops/ssd_segments.h).
#include <algorithm>

#include "megatrain/ops/cuda/ssd/launch.h"
#include "megatrain/ops/cuda/ssd/segment_kernels.h"
#include "megatrain/ops/cuda/ssd/tiles.cuh"

namespace megatrain {

namespace {

// The scratch of one call: the states between segments, then what a segment's chunks have.
class SsdSegmentScratch {
 public:
  SsdSegmentScratch(const SsdShape& shape, void* memory)
      : sizes_(shape), heads_(shape.heads), chunks_(ssd_segment_sizes(shape).most) {
    next_ = static_cast<float*>(memory);
    slots_ = array(ssd_segment_sizes(shape).slots() * sizes_.state);
  }

  void place(SsdKernelArgs& args, bool backward) {
    args.states = array(chunks_ * sizes_.state);
    args.kept = array(chunks_);
    if (!backward) return;
    args.grad_states = array(chunks_ * sizes_.state);
    args.grad_pairs = array(chunks_ * sizes_.pairs);
  }
  float* slot(int64_t index) const { return index < 0 ? nullptr : slots_ + index * sizes_.state * heads_; }

 private:
  float* array(int64_t count_of_head) {
    float* const made = next_;
    next_ += count_of_head * heads_;
    return made;
  }

  SsdScratch sizes_;
  int64_t heads_, chunks_;
  float* next_;
  float* slots_;
};

template <class Args>
SsdKernelArgs kernel_args(const Args& args) {
  const SsdShape& shape = args.shape;
  ensure(shape.groups > 0 && shape.heads % shape.groups == 0, "heads share groups evenly");
  ensure(args.step.dtype == DType::f32 && args.g.dtype == DType::f32, "steps and decays are fp32");
  ensure(args.b.dtype == args.x.dtype && args.c.dtype == args.x.dtype, "the recurrence's tensors share a dtype");
  SsdKernelArgs made{};
  made.heads = static_cast<int>(shape.heads);
  made.group = static_cast<int>(shape.heads / shape.groups);
  made.head_dim = static_cast<int>(shape.head_dim);
  made.state_dim = static_cast<int>(shape.state_dim);
  made.x = ssd_rows(args.x);
  made.b = ssd_rows(args.b);
  made.c = ssd_rows(args.c);
  made.step = ssd_rows(args.step);
  made.g = ssd_rows(args.g);
  made.skip = args.skip.data;
  made.skip_is_bf16 = args.skip.dtype == DType::bf16;
  return made;
}

void set_segment(SsdKernelArgs& args, const ChunkSegment& segment) {
  args.chunks = static_cast<int>(segment.chunks.size());
  std::copy(segment.chunks.begin(), segment.chunks.end(), args.places);
}

}  // namespace

void launch(const SsdForward& args, void* scratch, cudaStream_t stream) {
  if (args.shape.tokens == 0) return;
  ensure(args.out.dtype == args.x.dtype, "the recurrence's tensors share a dtype");
  SsdKernelArgs call = kernel_args(args);
  call.out = ssd_rows(args.out);
  SsdSegmentScratch memory(args.shape, scratch);
  memory.place(call, false);
  for (const ChunkSegment& segment : ssd_segments(args.shape, args.documents)) {
    set_segment(call, segment);
    call.before = memory.slot(segment.slot_before);
    call.after = memory.slot(segment.slot_after);
    launch_ssd_states(call, args.x.dtype, stream);
    launch_ssd_scan(call, stream);
    launch_ssd_output(call, args.x.dtype, stream);
  }
}

// Forward through the segments for the states between them, then back through the segments. A slot's state is read for
// the last time before its gradient replaces it.
void launch(const SsdBackward& args, void* scratch, cudaStream_t stream) {
  if (args.shape.tokens == 0) return;
  for (const View* view : {&args.grad_out, &args.grad_x, &args.grad_b, &args.grad_c})
    ensure(view->dtype == args.x.dtype, "the recurrence's tensors share a dtype");
  ensure(args.grad_step.dtype == DType::f32 && args.grad_g.dtype == DType::f32, "gradients of steps are fp32");
  const DType dtype = args.x.dtype;
  SsdKernelArgs call = kernel_args(args);
  call.grad_out = ssd_rows(args.grad_out);
  call.grad_x = ssd_rows(args.grad_x);
  call.grad_b = ssd_rows(args.grad_b);
  call.grad_c = ssd_rows(args.grad_c);
  call.grad_step = ssd_rows(args.grad_step);
  call.grad_g = ssd_rows(args.grad_g);
  SsdSegmentScratch memory(args.shape, scratch);
  memory.place(call, true);
  const std::vector<ChunkSegment> segments = ssd_segments(args.shape, args.documents);
  const auto states = [&](const ChunkSegment& segment, float* after) {
    set_segment(call, segment);
    call.before = memory.slot(segment.slot_before);
    call.after = after;
    launch_ssd_states(call, dtype, stream);
    launch_ssd_scan(call, stream);
  };
  for (const ChunkSegment& segment : segments) {
    if (segment.slot_after >= 0) states(segment, memory.slot(segment.slot_after));
  }
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    states(*segment, nullptr);
    launch_ssd_states_back(call, dtype, stream);
    call.before = memory.slot(segment->slot_after);
    call.after = memory.slot(segment->slot_before);
    launch_ssd_scan_back(call, stream);
    launch_ssd_gradient(call, dtype, stream);
    launch_ssd_group_gradient(call, dtype, stream);
  }
}

}  // namespace megatrain
