// Turns the stored form of a packed record into the form used for compute, in as few calls as possible.
#pragma once

#include <cstddef>
#include <vector>

#include "megatrain/ops/ops.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

class Unpacking {
 public:
  explicit Unpacking(const LayerLayout& layout);

  int64_t calls() const { return static_cast<int64_t>(runs_.size()); }  // 0: the record is not packed
  void run(Ops& ops, Stream& stream, const std::byte* packed, std::byte* weights) const;

 private:
  // Tensors that have the same place in consecutive parts of the record, such as experts.
  struct Run {
    UnpackWeights call;  // with null addresses
    int64_t packed_at, out_at;

    bool takes(const TensorSpec& tensor) const;
  };

  std::vector<Run> runs_;
};

}  // namespace megatrain
