// The rows and weights of an expert. Called when an op runs, because earlier ops write how many rows there are.
#pragma once

#include "megatrain/base/error.h"
#include "megatrain/ops/experts.h"

namespace megatrain::cpu {

// Rows of all experts in the group.
inline int64_t count_rows(const ExpertRows& rows) { return int64_t{rows.begin[rows.experts]} - rows.begin[0]; }

inline void check(const ExpertRows& rows) {
  ensure(count_rows(rows) >= 0 && rows.begin[rows.experts] - *rows.first() <= rows.most,
         "the rows of a group of experts fit its buffers");
}

// The part of a buffer with the rows of expert i of the group.
inline View rows_of(const ExpertRows& rows, int64_t i, const View& buffer) {
  return buffer.slice_rows(int64_t{rows.begin[i]} - *rows.first(), int64_t{rows.begin[i + 1]} - rows.begin[i]);
}

// The weights of expert i of the group; empty if there are none.
inline View weights_of(const ExpertWeights& weights, int64_t i) {
  View view = weights.first;
  if (!view.empty()) view.data = static_cast<std::byte*>(view.data) + i * weights.stride * dtype_bytes(view.dtype);
  return view;
}

}  // namespace megatrain::cpu
