// Unpacks the weights of a packed record (tensor/layout.h) into the form used for compute.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/packing.h"

namespace megatrain {

// out[p][i] = the value of element i of part p. Parts have the same size and lie at equal distances: one tensor of
// every expert, or of one record. The result is exact: `dtype` can represent all values.
struct UnpackWeights {
  WeightPacking packing = WeightPacking::none;  // none: a plain copy
  DType dtype = DType::bf16;                    // bf16 or fp32
  const std::byte* packed;                      // first part, aligned to kPackedAlignment
  std::byte* out;                               // likewise
  int64_t elements = 0;                         // per part; whole blocks
  int64_t parts = 1;
  int64_t packed_stride = 0;  // bytes from one part to the next
  int64_t out_stride = 0;     // likewise
};

}  // namespace megatrain
