// MXFP4: blocks of 32 numbers of four bits, two in a byte, the first in the low half, and a power of two for each
// block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megatrain {

inline constexpr int64_t kMxfp4Block = 32;       // numbers
inline constexpr int64_t kMxfp4BlockBytes = 16;  // they take

// Numbers [begin, begin + count) of a run of blocks: 0, 0.5, 1, 1.5, 2, 3, 4, 6 or one of these less than zero, times
// 2^(scale - 127). Exact; what fp32 cannot hold is infinite.
void decode_mxfp4(const std::byte* blocks, const std::byte* scales, int64_t begin, int64_t count, float* out);

// Whole blocks of the values, each with the smallest power that holds its largest number. False: some value has no code
// under the power of its block, and what was written means nothing. All that decode_mxfp4() gives but infinities has.
bool encode_mxfp4(const float* values, int64_t count, std::byte* blocks, std::byte* scales);

}  // namespace megatrain
