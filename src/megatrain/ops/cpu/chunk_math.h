// What the ops that compute a recurrence in chunks share: their matmuls, as fp32 or, in tests, as fp64.
#pragma once

#include <cmath>
#include <cstdint>

#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/matmul.h"

namespace megatrain::cpu {

inline float exp_of(float x) { return exp_f32(x); }
inline double exp_of(double x) { return std::exp(x); }

template <class Real>
struct Factor {
  const Real* data;
  int64_t stride;
  bool transposed = false;
};

// c = alpha a b, or c += ; a (m, k), b (k, n), c (m, n) after transposing
template <class Real>
struct Product {
  int64_t m, n, k;
  Factor<Real> a, b;
  Real* c;
  Real alpha = 1;
  bool accumulate = false;
};

// The matmuls of ops.
struct ChunkMath {
  using Real = float;
  MatmulFunction pass;

  void operator()(const Product<float>& p) const {
    pass({.m = p.m,
          .n = p.n,
          .k = p.k,
          .a = {p.a.data, p.a.stride},
          .transpose_a = p.a.transposed,
          .b = {p.b.data, p.b.stride},
          .transpose_b = p.b.transposed,
          .c = p.c,
          .c_stride = p.n,
          .alpha = p.alpha,
          .accumulate = p.accumulate});
  }
};

}  // namespace megatrain::cpu
