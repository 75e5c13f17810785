// Element types of tensors that live in memory or files.
#pragma once

#include <cstdint>

namespace megatrain {

enum class DType : uint8_t { f32, bf16, f16, i32, i64, u16, u8, f64 };

constexpr int64_t dtype_bytes(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr const char* dtype_name(DType type) {
  switch (type) {
    case DType::f32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::f16: return "fp16";
    case DType::i32: return "int32";
    case DType::i64: return "int64";
    case DType::u16: return "uint16";
    case DType::u8: return "uint8";
    case DType::f64: return "fp64";
  }
  return "?";
}

}  // namespace megatrain
