// How optimizer state is stored. A format changes bits, so it is run identity; where the bytes lie is the plan's.
//
//   moments   fp32   4 bytes each, exact
//             bf16   2 bytes each, rounded to nearest even
//             int8   1 byte each and an fp32 scale for every kStateBlock of them (tensor/moment_codes.h)
//   master    fp32        the bf16 weight and the 16 bits below it: exact
//             stochastic  the bf16 weight alone, rounded up or down by chance (ops/stochastic.h)
//
// 12, 8, 6 bytes a parameter with an fp32 master; 10, 6, 4 with a stochastic one.
#pragma once

#include <cstdint>

namespace megatrain {

enum class MomentFormat : uint8_t { fp32, bf16, int8 };
enum class MasterFormat : uint8_t { fp32, stochastic };

struct StateFormat {
  MomentFormat moments = MomentFormat::fp32;
  MasterFormat master = MasterFormat::fp32;
  bool operator==(const StateFormat&) const = default;
};

// Elements that share a scale. Blocks count from each tensor's first element, of an embedding from each row's; the last
// of a tensor or row may be short. So no padding, fusing or freezing of a layout changes a bit.
inline constexpr int64_t kStateBlock = 256;

}  // namespace megatrain
