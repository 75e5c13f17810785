#include "megatrain/hub/stored_type.h"

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

struct TypeEntry {
  StoredType type;
  const char* name;
  int64_t bytes;
};

constexpr TypeEntry kTypes[] = {
    {StoredType::f64, "F64", 8},      {StoredType::f32, "F32", 4},         {StoredType::f16, "F16", 2},
    {StoredType::bf16, "BF16", 2},    {StoredType::i64, "I64", 8},         {StoredType::i32, "I32", 4},
    {StoredType::i16, "I16", 2},      {StoredType::i8, "I8", 1},           {StoredType::u64, "U64", 8},
    {StoredType::u32, "U32", 4},      {StoredType::u16, "U16", 2},         {StoredType::u8, "U8", 1},
    {StoredType::boolean, "BOOL", 1}, {StoredType::f8_e4m3, "F8_E4M3", 1}, {StoredType::f8_e5m2, "F8_E5M2", 1},
};

const TypeEntry& entry_of(StoredType type) {
  for (const TypeEntry& entry : kTypes) {
    if (entry.type == type) return entry;
  }
  fail_internal("a stored type has no entry in the table of types");
}

}  // namespace

int64_t stored_type_bytes(StoredType type) { return entry_of(type).bytes; }
const char* stored_type_name(StoredType type) { return entry_of(type).name; }

std::optional<StoredType> parse_stored_type(std::string_view name) {
  for (const TypeEntry& entry : kTypes) {
    if (name == entry.name) return entry.type;
  }
  return {};
}

StoredType to_stored_type(DType type) {
  switch (type) {
    case DType::f64: return StoredType::f64;
    case DType::f32: return StoredType::f32;
    case DType::f16: return StoredType::f16;
    case DType::bf16: return StoredType::bf16;
    case DType::i64: return StoredType::i64;
    case DType::i32: return StoredType::i32;
    case DType::u16: return StoredType::u16;
    case DType::u8: return StoredType::u8;
  }
  fail_internal("an element type has no safetensors name");
}

std::optional<DType> parameter_type(StoredType type) {
  switch (type) {
    case StoredType::f32: return DType::f32;
    case StoredType::f16: return DType::f16;
    case StoredType::bf16: return DType::bf16;
    default: return {};
  }
}

}  // namespace megatrain
