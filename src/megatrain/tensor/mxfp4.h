// MXFP4: blocks of 32 four-bit numbers, two to a byte with the first in the low half, and a power of two for each
// block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megatrain {

inline constexpr int64_t kMxfp4Block = 32;       // numbers
inline constexpr int64_t kMxfp4BlockBytes = 16;  // per block

// Decodes numbers [begin, begin + count) of consecutive blocks: plus or minus 0, 0.5, 1, 1.5, 2, 3, 4 or 6, times
// 2^(scale - 127). Exact; what fp32 cannot hold becomes infinite.
void decode_mxfp4(const std::byte* blocks, const std::byte* scales, int64_t begin, int64_t count, float* out);

// What code 0 to 15 stands for in a block whose power is 1.
float mxfp4_value(unsigned code);

// Encodes whole blocks, each with the smallest power that holds its largest number. Returns false if some value has no
// code under its block's power; the output is then meaningless. Everything that decode_mxfp4() returns, except
// infinities, can be encoded.
bool encode_mxfp4(const float* values, int64_t count, std::byte* blocks, std::byte* scales);

}  // namespace megatrain
