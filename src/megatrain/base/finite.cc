#include "megatrain/base/finite.h"

#include <algorithm>
#include <bit>

namespace megatrain {

namespace {

uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu; }

}  // namespace

int64_t first_not_finite(const float* values, int64_t count, uint32_t limit) {
  uint32_t worst = 0;
  for (int64_t i = 0; i < count; ++i) worst = std::max(worst, magnitude(values[i]));
  if (worst < limit) return -1;
  return std::find_if(values, values + count, [limit](float x) { return magnitude(x) >= limit; }) - values;
}

}  // namespace megatrain
