// How a frozen matrix is stored in fewer bits than it computes in. Its values are the same, so no result depends on it.
// What it takes in memory, on disk and on the link does.
#pragma once

#include <cstdint>

#include "megatrain/base/math.h"
#include "megatrain/tensor/fp8.h"
#include "megatrain/tensor/mxfp4.h"

namespace megatrain {

enum class WeightPacking : uint8_t {
  none,
  mxfp4,  // blocks of four-bit numbers, then the scales of all blocks
  fp8,    // numbers in E4M3, then the fp32 scales of blocks of 128 x 128
};

// Alignment of packed tensors in the stored form of their record: kernels read them 16 bytes at a time.
inline constexpr int64_t kPackedAlignment = 256;

constexpr const char* packing_name(WeightPacking packing) {
  switch (packing) {
    case WeightPacking::none: break;
    case WeightPacking::mxfp4: return "MXFP4";
    case WeightPacking::fp8: return "block-scaled fp8";
  }
  return "plain";
}

constexpr int64_t packed_code_bytes(WeightPacking packing, int64_t rows, int64_t cols) {
  switch (packing) {
    case WeightPacking::none: break;
    case WeightPacking::mxfp4: return rows * cols / 2;
    case WeightPacking::fp8: return rows * cols;
  }
  return 0;
}

// Where the scales of a packed matrix begin, in bytes from its start: behind its codes.
constexpr int64_t packed_scales_at(WeightPacking packing, int64_t rows, int64_t cols) {
  constexpr int64_t kFp8ScalesAlignment = 16;
  const int64_t codes = packed_code_bytes(packing, rows, cols);
  return packing == WeightPacking::fp8 ? round_up(codes, kFp8ScalesAlignment) : codes;
}

constexpr int64_t packed_scale_bytes(WeightPacking packing, int64_t rows, int64_t cols) {
  switch (packing) {
    case WeightPacking::none: break;
    case WeightPacking::mxfp4: return rows * cols / kMxfp4Block;
    case WeightPacking::fp8: return 4 * fp8_scales(rows, cols);
  }
  return 0;
}

constexpr int64_t packed_bytes(WeightPacking packing, int64_t rows, int64_t cols) {
  return packed_scales_at(packing, rows, cols) + packed_scale_bytes(packing, rows, cols);
}

}  // namespace megatrain
