#include "megatrain/gguf/tensor_type.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/finite.h"
#include "megatrain/hub/convert.h"
#include "megatrain/io/file.h"

namespace megatrain {
namespace {

struct TypeEntry {
  GgufType type;
  const char* name;
  uint32_t number;
  uint32_t file_type;
};
constexpr std::array<TypeEntry, 4> kTypes = {{{GgufType::f32, "f32", 0, 0},
                                              {GgufType::f16, "f16", 1, 1},
                                              {GgufType::bf16, "bf16", 30, 32},
                                              {GgufType::q8_0, "q8_0", 8, 7}}};

const TypeEntry& entry_of(GgufType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeEntry& entry) { return entry.type == type; });
}

constexpr float kRoundsToInfinity = 65520.0f;  // half a step above fp16's largest value

[[noreturn]] void refuse_large(const std::string& name, float value, const char* what) {
  fail_input(fmt::format("tensor {} holds {}, {}; export it as bf16 or f32", printable(name), value, what));
}

void encode_q8(const float* values, int64_t count, const std::string& name, std::byte* out) {
  ensure(count % kQ8Block == 0, "q8_0 is written in whole blocks");
  for (int64_t block = 0; block < count; block += kQ8Block, out += kQ8BlockBytes) {
    const float* x = values + block;
    float largest = 0;
    for (int64_t i = 0; i < kQ8Block; ++i) largest = std::max(largest, std::fabs(x[i]));
    const float scale = largest / 127.0f;
    if (scale >= kRoundsToInfinity) refuse_large(name, largest, "above what a scale of q8_0 reaches");
    const float inverse = scale == 0 ? 0.0f : 1.0f / scale;
    write_from_f32(&scale, 1, DType::f16, out);
    for (int64_t i = 0; i < kQ8Block; ++i) {
      // The inverse of a scale near fp32's smallest value is infinite, so the product may be infinite or NaN.
      const float number = std::clamp(std::round(x[i] * inverse), -127.0f, 127.0f);
      const auto byte = static_cast<int8_t>(std::isnan(number) ? 0.0f : number);
      std::memcpy(out + 2 + i, &byte, 1);
    }
  }
}

}  // namespace

std::optional<GgufType> parse_gguf_type(std::string_view name) {
  for (const TypeEntry& entry : kTypes) {
    if (name == entry.name) return entry.type;
  }
  return {};
}

const char* gguf_type_name(GgufType type) { return entry_of(type).name; }
uint32_t gguf_type_number(GgufType type) { return entry_of(type).number; }
uint32_t gguf_file_type(GgufType type) { return entry_of(type).file_type; }

GgufType type_for_rows(GgufType type, int64_t cols) {
  return type == GgufType::q8_0 && cols % kQ8Block != 0 ? GgufType::f16 : type;
}

int64_t gguf_bytes(GgufType type, int64_t count) {
  switch (type) {
    case GgufType::f32: return 4 * count;
    case GgufType::f16:
    case GgufType::bf16: return 2 * count;
    case GgufType::q8_0: return count / kQ8Block * kQ8BlockBytes;
  }
  fail_internal("an element type of GGUF has no size");
}

void encode_gguf(const float* values, int64_t count, GgufType type, const std::string& name,
                 std::vector<std::byte>& out) {
  if (const int64_t bad = first_not_finite(values, count); bad >= 0)
    fail_input(fmt::format("tensor {} holds {}; a model with such weights answers nothing, so it is not exported",
                           printable(name), values[bad]));
  out.resize(static_cast<size_t>(gguf_bytes(type, count)));
  if (type == GgufType::q8_0) return encode_q8(values, count, name, out.data());
  if (type == GgufType::f16) {
    for (int64_t i = 0; i < count; ++i) {
      if (std::fabs(values[i]) >= kRoundsToInfinity) refuse_large(name, values[i], "above what fp16 reaches");
    }
  }
  write_from_f32(values, count,
                 type == GgufType::f32   ? DType::f32
                 : type == GgufType::f16 ? DType::f16
                                         : DType::bf16,
                 out.data());
}

}  // namespace megatrain
