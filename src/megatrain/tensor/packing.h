// How a frozen tensor is stored in fewer bits than it computes in. Its values are the same, so no result depends on it.
// What it takes in memory, on disk and on the link does.
#pragma once

#include <cstdint>

#include "megatrain/tensor/mxfp4.h"

namespace megatrain {

enum class WeightPacking : uint8_t {
  none,
  mxfp4,  // blocks of four-bit numbers, then the scales of all blocks
};

// Alignment of packed tensors in the stored form of their record: kernels read them 16 bytes at a time.
inline constexpr int64_t kPackedAlignment = 256;

constexpr int64_t packed_bytes(WeightPacking packing, int64_t elements) {
  switch (packing) {
    case WeightPacking::none: break;
    case WeightPacking::mxfp4: return elements / 2 + elements / kMxfp4Block;
  }
  return 0;
}

}  // namespace megatrain
