// AdamW eight elements at a time. Compiled for AVX2 and FMA.
#include "megatrain/ops/cpu/adamw_simd.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "megatrain/ops/cpu/adamw_coded.h"

namespace megatrain {
namespace {

struct Avx2 {
  static constexpr int kLanes = 8;
  using F = __m256;
  using U = __m256i;

  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F sqrt(F a) { return _mm256_sqrt_ps(a); }
  static F flush_below(F x, F limit) { return _mm256_and_ps(x, _mm256_cmp_ps(abs(x), limit, _CMP_NLT_UQ)); }

  static U zero() { return _mm256_setzero_si256(); }
  static U half() { return _mm256_set1_epi32(0x8000); }
  static U widen(const uint16_t* p) { return _mm256_cvtepu16_epi32(load16(p)); }
  static U widen_signed(const uint16_t* p) { return _mm256_cvtepi16_epi32(load16(p)); }
  static void narrow(uint16_t* p, U x) {
    const U low = _mm256_and_si256(x, _mm256_set1_epi32(0xFFFF));
    const U packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0b1000);  // lanes 0-3, then 4-7
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
  static U add(U a, U b) { return _mm256_add_epi32(a, b); }
  static U shift_up16(U x) { return _mm256_slli_epi32(x, 16); }
  static U shift_down16(U x) { return _mm256_srli_epi32(x, 16); }
  static F as_float(U x) { return _mm256_castsi256_ps(x); }
  static U as_bits(F x) { return _mm256_castps_si256(x); }
  static U largest_magnitude(U worst, F x) { return _mm256_max_epu32(worst, as_bits(abs(x))); }
  static uint32_t largest(U x) {
    __m128i half = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0b01001110));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0b10110001));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(half));
  }

 private:
  static F abs(F x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  static __m128i load16(const uint16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
};

}  // namespace

AdamWPass adamw_avx2() { return &adamw_pass<Avx2>; }

}  // namespace megatrain

#else

namespace megatrain {

AdamWPass adamw_avx2() { return nullptr; }

}  // namespace megatrain

#endif
