#include "megatrain/hub/convert.h"

#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

// fp32 bits: sign 1, exponent 8, mantissa 23. fp16: 1, 5, 10. bf16: 1, 8, 7.
constexpr uint32_t kMagnitude = 0x7FFFFFFFu;
constexpr uint32_t kInfinity = 0x7F800000u;
constexpr uint32_t kRebias = (127u - 15u) << 23;  // from fp16's exponent bias to fp32's
constexpr uint32_t kHalfNormal = 0x38800000u;     // 2^-14, the smallest normal fp16
constexpr uint32_t kHalfOverflow = 0x47800000u;   // 2^16; [65520, 2^16) rounds up to infinity without special treatment

// Uses masks instead of branches: a branch around floating-point operations would prevent vectorisation.
uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

uint32_t widen_half(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7FFFu;
  const uint32_t normal = (magnitude << 13) + kRebias;
  const uint32_t special = (magnitude << 13) | kInfinity;  // infinity, or a NaN with its payload
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = select(magnitude < 0x0400u, subnormal, normal);
  return sign | select(magnitude >= 0x7C00u, special, finite);
}

uint32_t narrow_half(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & kMagnitude;
  const uint32_t normal = (magnitude - kRebias + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  // The last bit of the sum is 2^-24, the spacing of fp16's subnormals, so the addition itself rounds to nearest even.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  // A NaN whose payload does not fit becomes quiet, so that it cannot turn into infinity.
  const uint32_t nan = 0x7C00u | ((magnitude >> 13) & 0x3FFu) | ((magnitude & 0x1FFFu) != 0 ? 0x200u : 0u);
  const uint32_t small = select(magnitude < kHalfNormal, subnormal, normal);
  const uint32_t number = select(magnitude >= kHalfOverflow, 0x7C00u, small);
  return sign | select(magnitude > kInfinity, nan, number);
}

uint32_t narrow_bf16(uint32_t bits) {
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | ((bits & 0xFFFFu) != 0 ? 0x40u : 0u);
  return (bits & kMagnitude) > kInfinity ? nan : rounded;
}

// memcpy, because stored elements are not aligned. Integers, not floats, because moving a float could quiet a NaN.
template <class Map>
void map_16_to_32(const std::byte* in, int64_t count, std::byte* out, Map map) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t narrow;
    std::memcpy(&narrow, in + 2 * i, 2);
    const uint32_t wide = map(narrow);
    std::memcpy(out + 4 * i, &wide, 4);
  }
}

template <class Map>
void map_32_to_16(const std::byte* in, int64_t count, std::byte* out, Map map) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t wide;
    std::memcpy(&wide, in + 4 * i, 4);
    const uint16_t narrow = static_cast<uint16_t>(map(wide));
    std::memcpy(out + 2 * i, &narrow, 2);
  }
}

}  // namespace

void widen_to_f32(const std::byte* in, DType type, int64_t count, float* out) {
  if (count == 0) return;
  std::byte* bytes = reinterpret_cast<std::byte*>(out);
  switch (type) {
    case DType::f32: std::memcpy(bytes, in, static_cast<size_t>(count) * 4); return;
    case DType::bf16: map_16_to_32(in, count, bytes, [](uint32_t x) { return x << 16; }); return;
    case DType::f16: map_16_to_32(in, count, bytes, widen_half); return;
    default: fail_internal(fmt::format("{} elements have no widening to fp32", dtype_name(type)));
  }
}

void read_as_f32(const StoredTensor& tensor, int64_t begin, int64_t count, float* out) {
  const std::optional<DType> type = parameter_type(tensor.dtype);
  if (!type) {
    fail_input(fmt::format("tensor {} has {} elements, expected F32, F16 or BF16; convert it first.",
                           printable(tensor.name), stored_type_name(tensor.dtype)));
  }
  ensure(begin >= 0 && count >= 0 && begin <= tensor.elements() - count, "a read lies inside its stored tensor");
  widen_to_f32(tensor.data + begin * dtype_bytes(*type), *type, count, out);
}

void write_from_f32(const float* in, int64_t count, DType type, std::byte* out) {
  if (count == 0) return;
  const std::byte* bytes = reinterpret_cast<const std::byte*>(in);
  switch (type) {
    case DType::f32: std::memcpy(out, bytes, static_cast<size_t>(count) * 4); return;
    case DType::bf16: map_32_to_16(bytes, count, out, narrow_bf16); return;
    case DType::f16: map_32_to_16(bytes, count, out, narrow_half); return;
    default: fail_internal(fmt::format("fp32 has no narrowing to {} elements", dtype_name(type)));
  }
}

}  // namespace megatrain
