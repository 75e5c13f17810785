// Block-scaled fp8, as DeepSeek and Qwen release it: a matrix of numbers in E4M3, one to a byte, and an fp32 scale for
// each block of 128 x 128 of them. The last blocks of a row or a column may be partial.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megatrain/base/math.h"
#include "megatrain/tensor/dtype.h"

namespace megatrain {

inline constexpr int64_t kFp8Block = 128;  // rows, and columns

constexpr int64_t fp8_scales(int64_t rows, int64_t cols) {
  return ceil_div(rows, kFp8Block) * ceil_div(cols, kFp8Block);
}

// What a code stands for under a scale of 1. 0x7F and 0xFF are NaN; no code is infinite.
float fp8_value(unsigned code);

// In all functions below `codes` are those of elements [begin, begin + count) of a matrix with rows of `cols`, while
// `scales` are those of the whole matrix: (ceil(rows / 128), ceil(cols / 128)).

// The number times its scale, rounded once to fp32. In bf16 the value is that, rounded to bf16: what transformers makes
// of it.
void decode_fp8(const std::byte* codes, const float* scales, int64_t cols, int64_t begin, int64_t count, float* out);

// The same, with values of `dtype`: fp32 or bf16.
void decode_fp8(DType dtype, const std::byte* codes, const float* scales, int64_t cols, int64_t begin, int64_t count,
                float* out);

// Finds the codes whose values in `dtype` are these. Returns false if some value has no code under its block's scale;
// the output is then meaningless. The signs of zeros are kept.
bool encode_fp8(DType dtype, const float* values, const float* scales, int64_t cols, int64_t begin, int64_t count,
                std::byte* codes);

// The code whose value under `scale` is the nearest; the largest if the value is too large for any.
std::byte nearest_fp8(float value, float scale);

// Index, from `begin` on, of the first element whose value in `dtype` is not finite; -1 if there is none.
int64_t first_not_finite_fp8(DType dtype, const std::byte* codes, const float* scales, int64_t cols, int64_t begin,
                             int64_t count);

}  // namespace megatrain
