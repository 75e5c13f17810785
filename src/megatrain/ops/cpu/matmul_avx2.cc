#include "megatrain/ops/cpu/matmul.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "megatrain/ops/cpu/matmul_pass.h"

namespace megatrain::cpu {
namespace {

struct Avx2 {
  static constexpr int kLanes = 8, kRows = 6;
  using F = __m256;
  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
};

}  // namespace

MatmulFunction matmul_avx2() { return &matmul_pass<Avx2>; }

}  // namespace megatrain::cpu

#else

namespace megatrain::cpu {
MatmulFunction matmul_avx2() { return nullptr; }
}  // namespace megatrain::cpu

#endif
