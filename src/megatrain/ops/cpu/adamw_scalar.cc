// AdamW one element at a time, on any architecture: the reference for the other passes.
#include "megatrain/ops/cpu/adamw_simd.h"

#include <bit>
#include <cmath>

#include "megatrain/ops/cpu/adamw_coded.h"

namespace megatrain {
namespace {

struct Scalar {
  static constexpr int kLanes = 1;
  using F = float;
  using U = uint32_t;

  static F set(float x) { return x; }
  static F load(const float* p) { return *p; }
  static void store(float* p, F x) { *p = x; }
  static F mul(F a, F b) { return a * b; }
  static F sub(F a, F b) { return a - b; }
  static F fma(F a, F b, F c) { return std::fma(a, b, c); }
  static F div(F a, F b) { return a / b; }
  static F sqrt(F a) { return std::sqrt(a); }
  static F flush_below(F x, F limit) { return std::fabs(x) < limit ? 0.0f : x; }

  static U zero() { return 0; }
  static U half() { return 0x8000u; }
  static U widen(const uint16_t* p) { return *p; }
  static U widen_signed(const uint16_t* p) { return static_cast<uint32_t>(int32_t{static_cast<int16_t>(*p)}); }
  static void narrow(uint16_t* p, U x) { *p = static_cast<uint16_t>(x); }
  static U add(U a, U b) { return a + b; }
  static U shift_up16(U x) { return x << 16; }
  static U shift_down16(U x) { return x >> 16; }
  static F as_float(U x) { return std::bit_cast<float>(x); }
  static U as_bits(F x) { return std::bit_cast<uint32_t>(x); }
  static U largest_magnitude(U worst, F x) {
    const U magnitude = as_bits(x) & 0x7FFFFFFFu;
    return magnitude > worst ? magnitude : worst;
  }
  static uint32_t largest(U x) { return x; }
};

}  // namespace

AdamWPass adamw_scalar() { return &adamw_pass<Scalar>; }

}  // namespace megatrain
