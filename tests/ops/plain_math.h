// Matmuls of chunks by definition, in any precision, and numbers for them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "megatrain/base/rng.h"
#include "megatrain/ops/cpu/chunk_math.h"

namespace megatrain::testing {

template <class T>
struct PlainMath {
  using Real = T;
  void operator()(const cpu::Product<T>& p) const {
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        T sum = 0;
        for (int64_t l = 0; l < p.k; ++l)
          sum += p.a.data[p.a.transposed ? l * p.a.stride + i : i * p.a.stride + l] *
                 p.b.data[p.b.transposed ? j * p.b.stride + l : l * p.b.stride + j];
        p.c[i * p.n + j] = (p.accumulate ? p.c[i * p.n + j] : 0) + p.alpha * sum;
      }
    }
  }
};

template <class T>
std::vector<T> numbers(uint64_t seed, int64_t count, double amplitude) {
  std::vector<T> list(static_cast<size_t>(count));
  for (size_t i = 0; i < list.size(); ++i)
    list[i] = static_cast<T>(amplitude * static_cast<double>(random_normal_pair(seed, 5, i)[0]));
  return list;
}

template <class T>
double worst_difference(const std::vector<T>& a, const std::vector<T>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(a[i] - b[i])));
  return worst;
}

}  // namespace megatrain::testing
