#include "megatrain/tensor/fp8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "megatrain/base/bf16.h"

namespace megatrain {
namespace {

constexpr unsigned kSign = 0x80, kNan = 0x7F;
constexpr float kLargest = 448;

// Four bits of exponent with a bias of 7, three of mantissa.
constexpr std::array<float, 256> make_values() {
  std::array<float, 256> values{};
  for (unsigned code = 0; code < kNan; ++code) {
    const unsigned exponent = code >> 3, mantissa = code & 7u;
    float value = static_cast<float>(exponent == 0 ? mantissa : mantissa + 8) / 512;
    for (unsigned e = 1; e < exponent; ++e) value *= 2;
    values[code] = value;
    values[code | kSign] = -value;
  }
  values[kNan] = values[kNan | kSign] = std::numeric_limits<float>::quiet_NaN();
  return values;
}
constexpr std::array<float, 256> kValues = make_values();

float in_dtype(DType dtype, float value) { return dtype == DType::bf16 ? to_float(to_bf16(value)) : value; }

// Calls body(first, count, scale) for runs of elements under one scale; `first` counts from `begin`.
template <class Body>
void for_runs(const float* scales, int64_t cols, int64_t begin, int64_t count, const Body& body) {
  const int64_t row_scales = ceil_div(cols, kFp8Block);
  for (int64_t at = 0; at < count;) {
    const int64_t row = (begin + at) / cols, col = (begin + at) % cols;
    const int64_t end = std::min(cols, (col / kFp8Block + 1) * kFp8Block), run = std::min(end - col, count - at);
    body(at, run, scales[row / kFp8Block * row_scales + col / kFp8Block]);
    at += run;
  }
}

// The values in `dtype` of the positive codes under the size of a scale; they never descend.
std::array<float, kNan> sizes_under(DType dtype, float scale) {
  std::array<float, kNan> sizes;
  for (unsigned code = 0; code < kNan; ++code) sizes[code] = in_dtype(dtype, kValues[code] * std::abs(scale));
  return sizes;
}

}  // namespace

float fp8_value(unsigned code) { return kValues[code & 0xFFu]; }

void decode_fp8(const std::byte* codes, const float* scales, int64_t cols, int64_t begin, int64_t count, float* out) {
  for_runs(scales, cols, begin, count, [&](int64_t first, int64_t run, float scale) {
    for (int64_t i = first; i < first + run; ++i) out[i] = kValues[std::to_integer<unsigned>(codes[i])] * scale;
  });
}

void decode_fp8(DType dtype, const std::byte* codes, const float* scales, int64_t cols, int64_t begin, int64_t count,
                float* out) {
  decode_fp8(codes, scales, cols, begin, count, out);
  if (dtype == DType::bf16) std::transform(out, out + count, out, [](float x) { return to_float(to_bf16(x)); });
}

bool encode_fp8(DType dtype, const float* values, const float* scales, int64_t cols, int64_t begin, int64_t count,
                std::byte* codes) {
  float known = 0;
  std::array<float, kNan> sizes = sizes_under(dtype, known);
  bool all = true;
  for_runs(scales, cols, begin, count, [&](int64_t first, int64_t run, float scale) {
    if (scale != known) sizes = sizes_under(dtype, known = scale);
    for (int64_t i = first; all && i < first + run; ++i) {
      const auto* const found = std::lower_bound(sizes.begin(), sizes.end(), std::abs(values[i]));
      all = found != sizes.end() && *found == std::abs(values[i]);
      const bool negative = std::signbit(values[i]) != std::signbit(scale);
      codes[i] = static_cast<std::byte>(static_cast<unsigned>(found - sizes.begin()) | (negative ? kSign : 0u));
    }
  });
  return all;
}

std::byte nearest_fp8(float value, float scale) {
  const float size = std::abs(value / scale);
  const auto* const above = std::lower_bound(kValues.begin(), kValues.begin() + kNan, std::min(size, kLargest));
  const bool below = above != kValues.begin() && size - above[-1] < *above - size;
  const auto code = static_cast<unsigned>(above - kValues.begin()) - (below ? 1 : 0);
  return static_cast<std::byte>(code | (std::signbit(value) != std::signbit(scale) ? kSign : 0u));
}

int64_t first_not_finite_fp8(DType dtype, const std::byte* codes, const float* scales, int64_t cols, int64_t begin,
                             int64_t count) {
  int64_t found = -1;
  for_runs(scales, cols, begin, count, [&](int64_t first, int64_t run, float scale) {
    if (found >= 0) return;
    bool any = !std::isfinite(in_dtype(dtype, kLargest * scale));  // only then an element may be too large
    for (int64_t i = first; i < first + run; ++i) any |= (codes[i] & std::byte{kNan}) == std::byte{kNan};
    for (int64_t i = first; any && found < 0 && i < first + run; ++i) {
      if (!std::isfinite(in_dtype(dtype, kValues[std::to_integer<unsigned>(codes[i])] * scale))) found = i;
    }
  });
  return found;
}

}  // namespace megatrain
