#include "megatrain/ops/cpu/matmul.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "megatrain/ops/cpu/matmul_pass.h"

namespace megatrain::cpu {
namespace {

struct Avx512 {
  static constexpr int kLanes = 16, kRows = 12;
  using F = __m512;
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
};

}  // namespace

MatmulFunction matmul_avx512() { return &matmul_pass<Avx512>; }

}  // namespace megatrain::cpu

#else

namespace megatrain::cpu {
MatmulFunction matmul_avx512() { return nullptr; }
}  // namespace megatrain::cpu

#endif
