#include "megatrain/ops/cpu/matmul.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "megatrain/ops/cpu/matmul_pass.h"

namespace megatrain::cpu {
namespace {

struct Neon {
  static constexpr int kLanes = 4, kRows = 8;
  using F = float32x4_t;
  static F set(float x) { return vdupq_n_f32(x); }
  static F load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, F x) { vst1q_f32(p, x); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
};

}  // namespace

MatmulFunction matmul_neon() { return &matmul_pass<Neon>; }

}  // namespace megatrain::cpu

#else

namespace megatrain::cpu {
MatmulFunction matmul_neon() { return nullptr; }
}  // namespace megatrain::cpu

#endif
