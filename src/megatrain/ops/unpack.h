// Unpacks the weights of a packed record (tensor/layout.h) into the form used for compute.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/packing.h"

namespace megatrain {

// out[p][i] = the value of element i of part p. Parts have the same size and lie at equal distances: one tensor of
// every expert, or of one record. Of MXFP4 the result is exact. Of fp8 it is rounded as decode_fp8() rounds it.
struct UnpackWeights {
  WeightPacking packing = WeightPacking::none;  // none: a plain copy
  DType dtype = DType::bf16;                    // bf16 or fp32
  const std::byte* packed;                      // first part, aligned to kPackedAlignment
  std::byte* out;                               // likewise, unless it continues an operand
  int64_t elements = 0;                         // per part; of MXFP4 whole blocks
  int64_t cols = 0;                             // of the matrix that a part is; only fp8 has blocks of rows
  int64_t parts = 1;
  int64_t packed_stride = 0;  // bytes from one part to the next
  int64_t out_stride = 0;     // likewise
};

}  // namespace megatrain
