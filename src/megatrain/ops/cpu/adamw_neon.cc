// AdamW four elements at a time on AArch64, where every CPU has these instructions.
#include "megatrain/ops/cpu/adamw_simd.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include "megatrain/ops/cpu/adamw_coded.h"

namespace megatrain {
namespace {

struct Neon {
  static constexpr int kLanes = 4;
  using F = float32x4_t;
  using U = uint32x4_t;

  static F set(float x) { return vdupq_n_f32(x); }
  static F load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, F x) { vst1q_f32(p, x); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F div(F a, F b) { return vdivq_f32(a, b); }
  static F sqrt(F a) { return vsqrtq_f32(a); }
  static F flush_below(F x, F limit) { return as_float(vbicq_u32(as_bits(x), vcltq_f32(vabsq_f32(x), limit))); }

  static U zero() { return vdupq_n_u32(0); }
  static U half() { return vdupq_n_u32(0x8000u); }
  static U widen(const uint16_t* p) { return vmovl_u16(vld1_u16(p)); }
  static U widen_signed(const uint16_t* p) {
    return vreinterpretq_u32_s32(vmovl_s16(vreinterpret_s16_u16(vld1_u16(p))));
  }
  static void narrow(uint16_t* p, U x) { vst1_u16(p, vmovn_u32(x)); }
  static U add(U a, U b) { return vaddq_u32(a, b); }
  static U shift_up16(U x) { return vshlq_n_u32(x, 16); }
  static U shift_down16(U x) { return vshrq_n_u32(x, 16); }
  static F as_float(U x) { return vreinterpretq_f32_u32(x); }
  static U as_bits(F x) { return vreinterpretq_u32_f32(x); }
  static U largest_magnitude(U worst, F x) { return vmaxq_u32(worst, as_bits(vabsq_f32(x))); }
  static uint32_t largest(U x) { return vmaxvq_u32(x); }
};

}  // namespace

AdamWPass adamw_neon() { return &adamw_pass<Neon>; }

}  // namespace megatrain

#else

namespace megatrain {

AdamWPass adamw_neon() { return nullptr; }

}  // namespace megatrain

#endif
