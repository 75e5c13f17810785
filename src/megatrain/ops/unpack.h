// The weights of a packed record (tensor/layout.h) in the form that computes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/packing.h"

namespace megatrain {

// out[p][i] = the value of element i of part p. Parts are alike and lie at equal distances from each other: a tensor of
// every expert, or of one record. Exact: `dtype` holds all values.
struct UnpackWeights {
  WeightPacking packing = WeightPacking::none;  // none: they are copied
  DType dtype = DType::bf16;                    // bf16 or fp32
  const std::byte* packed;                      // of the first part, aligned to kPackedAlignment
  std::byte* out;                               // likewise
  int64_t elements = 0;                         // of a part; whole blocks
  int64_t parts = 1;
  int64_t packed_stride = 0;  // bytes from one part to the next
  int64_t out_stride = 0;     // likewise
};

}  // namespace megatrain
