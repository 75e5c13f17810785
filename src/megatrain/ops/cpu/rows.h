// Rows of a view as fp32: arithmetic is fp32 whatever the stored dtype, and a store rounds once.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "megatrain/base/bf16.h"
#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/host/thread_team.h"
#include "megatrain/tensor/view.h"

namespace megatrain::cpu {

// Long rows are processed in chunks that stay in the L1 cache.
inline constexpr int64_t kChunk = 512;
using Chunk = std::array<float, kChunk>;

inline void check_dtype(const View& view) {
  ensure(view.dtype == DType::f32 || view.dtype == DType::bf16, "a CPU op works on fp32 and bf16 views only");
}

template <class T>
T* element(const View& view, int64_t row, int64_t col) {
  return view.as<T>() + row * view.row_stride + col;
}

inline void widen(const View& view, int64_t row, int64_t col, int64_t count, float* __restrict to) {
  if (view.dtype == DType::f32) {
    std::memcpy(to, element<float>(view, row, col), static_cast<size_t>(count) * sizeof(float));
  } else {
    const bf16* __restrict from = element<bf16>(view, row, col);
    for (int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
  }
}

inline void narrow(const float* __restrict from, const View& view, int64_t row, int64_t col, int64_t count) {
  if (view.dtype == DType::f32) {
    std::memcpy(element<float>(view, row, col), from, static_cast<size_t>(count) * sizeof(float));
  } else {
    bf16* __restrict to = element<bf16>(view, row, col);
    for (int64_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
  }
}

// The elements in place if they are fp32, otherwise a widened copy in `scratch`.
inline const float* read(const View& view, int64_t row, int64_t col, int64_t count, float* scratch) {
  if (view.dtype == DType::f32) return element<float>(view, row, col);
  widen(view, row, col, count, scratch);
  return scratch;
}

// Calls body(begin, count) for the chunks of [0, size).
template <class Body>
void for_chunks(int64_t size, const Body& body) {
  for (int64_t begin = 0; begin < size; begin += kChunk) body(begin, std::min(kChunk, size - begin));
}

// Calls body(row) for every row, distributed over the team in blocks of about kBlockElements elements.
template <class Body>
void for_rows(ThreadTeam& team, int64_t rows, int64_t cols, const Body& body) {
  constexpr int64_t kBlockElements = 16384;
  const int64_t block = std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, cols));
  team.parallel_for(ceil_div(rows, block), [&](int64_t index) {
    const int64_t end = std::min(rows, (index + 1) * block);
    for (int64_t row = index * block; row < end; ++row) body(row);
  });
}

// Sum of term(i) over [0, count) in fp64: eight partial sums, added in order. So the bits depend only on count.
template <class Term>
double sum_of(int64_t count, const Term& term) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) lanes[lane] += term(i + lane);
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  for (; i < count; ++i) sum += term(i);
  return sum;
}

// The bits of floats order like integers once the magnitude bits of negative ones are flipped, which is its own
// inverse. A positive NaN is then the largest.
inline int32_t flip_negative(int32_t bits) { return bits ^ ((bits >> 31) & 0x7FFFFFFF); }

// Largest of values[0, count), count > 0; a positive NaN counts as the largest.
inline float largest_of(const float* values, int64_t count) {
  int32_t largest = std::numeric_limits<int32_t>::min();
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, flip_negative(std::bit_cast<int32_t>(values[i])));
  return std::bit_cast<float>(flip_negative(largest));
}

}  // namespace megatrain::cpu
