// What our attention kernels share: rows of heads, and which keys a query sees.
#pragma once

#include "megatrain/ops/attention.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

struct AttentionProblem {
  AttentionShape shape;
  Documents documents;
  int64_t group;  // query heads per key head
};

struct AttentionHeads {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* row(int64_t token, int64_t head, int64_t size) const {
    return static_cast<T*>(data) + token * stride + head * size;
  }
};

inline AttentionHeads heads_of(const View& view) { return {view.data, view.row_stride}; }

struct TokenSpan {
  int64_t begin, end;
};

__device__ inline TokenSpan span_of(const Documents& documents, int64_t document) {
  if (documents.uniform) return {document * documents.longest, (document + 1) * documents.longest};
  return {documents.begin[document], documents.begin[document + 1]};
}

}  // namespace megatrain
