// Element types of the safetensors format, by the names its header uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "megatrain/tensor/dtype.h"

namespace megatrain {

enum class StoredType : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  f8_e4m3,
  f8_e5m2
};

int64_t stored_type_bytes(StoredType type);
const char* stored_type_name(StoredType type);  // "BF16"

// Empty if the format has no such type.
std::optional<StoredType> parse_stored_type(std::string_view name);

StoredType to_stored_type(DType type);

// The type as a parameter dtype: exists for F32, F16 and BF16 only.
std::optional<DType> parameter_type(StoredType type);

}  // namespace megatrain
