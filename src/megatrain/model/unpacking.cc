#include "megatrain/model/unpacking.h"

#include <map>

namespace megatrain {

// The second tensor of a run determines the strides.
bool Unpacking::Run::takes(const TensorSpec& tensor) const {
  const int64_t width = dtype_bytes(call.dtype);
  return tensor.packing == call.packing && tensor.elements() == call.elements && tensor.cols == call.cols &&
         (call.parts == 1 || (tensor.packed_offset == packed_at + call.parts * call.packed_stride &&
                              tensor.offset * width == out_at + call.parts * call.out_stride));
}

Unpacking::Unpacking(const LayerLayout& layout) {
  if (!layout.packed()) return;
  const int64_t width = dtype_bytes(layout.dtype());
  std::map<int64_t, size_t> last;  // the run of each place within a part
  int64_t part = -1, place = 0;
  for (const TensorSpec& tensor : layout.tensors) {
    place = tensor.part == part ? place + 1 : 0;
    part = tensor.part;
    const auto found = last.find(place);
    if (found != last.end() && runs_[found->second].takes(tensor)) {
      Run& run = runs_[found->second];
      if (run.call.parts++ > 1) continue;
      run.call.packed_stride = tensor.packed_offset - run.packed_at;
      run.call.out_stride = tensor.offset * width - run.out_at;
      continue;
    }
    last[place] = runs_.size();
    runs_.push_back({.call = {.packing = tensor.packing,
                              .dtype = tensor.dtype,
                              .packed = nullptr,
                              .out = nullptr,
                              .elements = tensor.elements(),
                              .cols = tensor.cols},
                     .packed_at = tensor.packed_offset,
                     .out_at = tensor.offset * width});
  }
}

void Unpacking::run(Ops& ops, Stream& stream, const std::byte* packed, std::byte* weights) const {
  for (const Run& run : runs_) {
    UnpackWeights call = run.call;
    call.packed = packed + run.packed_at;
    call.out = weights + run.out_at;
    ops.unpack_weights(stream, call);
  }
}

}  // namespace megatrain
