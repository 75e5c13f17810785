// AdamW sixteen elements at a time. Compiled for AVX-512 (F, BW, VL, DQ).
#include "megatrain/ops/cpu/adamw_simd.h"

#if defined(__x86_64__)

// gcc 12 warns about its own _mm512_undefined_ps() wherever it is inlined (gcc bug 105593).
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "megatrain/ops/cpu/adamw_coded.h"

namespace megatrain {
namespace {

struct Avx512 {
  static constexpr int kLanes = 16;
  using F = __m512;
  using U = __m512i;

  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F sqrt(F a) { return _mm512_sqrt_ps(a); }
  static F flush_below(F x, F limit) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(_mm512_abs_ps(x), limit, _CMP_NLT_UQ), x);
  }

  static U zero() { return _mm512_setzero_si512(); }
  static U half() { return _mm512_set1_epi32(0x8000); }
  static U widen(const uint16_t* p) { return _mm512_cvtepu16_epi32(load16(p)); }
  static U widen_signed(const uint16_t* p) { return _mm512_cvtepi16_epi32(load16(p)); }
  static void narrow(uint16_t* p, U x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x)); }
  static U add(U a, U b) { return _mm512_add_epi32(a, b); }
  static U shift_up16(U x) { return _mm512_slli_epi32(x, 16); }
  static U shift_down16(U x) { return _mm512_srli_epi32(x, 16); }
  static F as_float(U x) { return _mm512_castsi512_ps(x); }
  static U as_bits(F x) { return _mm512_castps_si512(x); }
  static U largest_magnitude(U worst, F x) { return _mm512_max_epu32(worst, as_bits(_mm512_abs_ps(x))); }
  static uint32_t largest(U x) { return _mm512_reduce_max_epu32(x); }

 private:
  static __m256i load16(const uint16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
};

}  // namespace

AdamWPass adamw_avx512() { return &adamw_pass<Avx512>; }

}  // namespace megatrain

#else

namespace megatrain {

AdamWPass adamw_avx512() { return nullptr; }

}  // namespace megatrain

#endif
