// Converts stored elements to fp32 and back. Widening is exact; narrowing rounds to nearest even. Widening and then
// narrowing restores every bit pattern, NaNs included.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megatrain/hub/safetensors.h"
#include "megatrain/tensor/dtype.h"

namespace megatrain {

// `in` holds `count` elements of `type` (f32, f16 or bf16) at any alignment.
void widen_to_f32(const std::byte* in, DType type, int64_t count, float* out);

// Elements [begin, begin + count) of the tensor.
void read_as_f32(const StoredTensor& tensor, int64_t begin, int64_t count, float* out);

// Writes `count` elements of `type` (f32, f16 or bf16) at any alignment. Finite values beyond fp16's range become
// infinite.
void write_from_f32(const float* in, int64_t count, DType type, std::byte* out);

}  // namespace megatrain
