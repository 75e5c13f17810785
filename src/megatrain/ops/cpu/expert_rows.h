// Where the rows and weights of an expert lie. Made when an op runs: how many rows there are is written by ops before.
#pragma once

#include "megatrain/base/error.h"
#include "megatrain/ops/experts.h"

namespace megatrain::cpu {

// Rows of all experts of the group.
inline int64_t count_rows(const ExpertRows& rows) { return int64_t{rows.begin[rows.experts]} - rows.begin[0]; }

inline void check(const ExpertRows& rows) {
  ensure(count_rows(rows) >= 0 && rows.begin[rows.experts] - *rows.first() <= rows.most,
         "the rows of a group of experts fit its buffers");
}

// The part of a buffer that holds the rows of expert i of the group.
inline View rows_of(const ExpertRows& rows, int64_t i, const View& buffer) {
  return buffer.slice_rows(int64_t{rows.begin[i]} - *rows.first(), int64_t{rows.begin[i + 1]} - rows.begin[i]);
}

// Those of expert i of the group; empty when there are none.
inline View weights_of(const ExpertWeights& weights, int64_t i) {
  View view = weights.first;
  if (!view.empty()) view.data = static_cast<std::byte*>(view.data) + i * weights.stride * dtype_bytes(view.dtype);
  return view;
}

}  // namespace megatrain::cpu
