// The sinks of the heads, and the layout of the log-sum-exps.
#pragma once

#include "megatrain/ops/attention.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

struct Sinks {
  const void* data;  // (heads); nullptr: no sinks
  bool is_bf16;

  __device__ float at(int64_t head) const {
    return is_bf16 ? widen(static_cast<const Bf16*>(data)[head]) : static_cast<const float*>(data)[head];
  }
};

inline Sinks sinks_of(const View& sinks) {
  ensure(sinks.empty() || sinks.dtype == DType::f32 || sinks.dtype == DType::bf16, "sinks are fp32 or bf16");
  return {sinks.data, sinks.dtype == DType::bf16};
}

// (documents, heads, longest) if the documents are uniform, otherwise (tokens, heads).
__device__ inline int64_t lse_place(const Documents& documents, int64_t heads, int64_t token, int64_t head) {
  if (!documents.uniform) return token * heads + head;
  const int64_t longest = documents.longest, begin = token / longest * longest;
  return begin * heads + head * longest + (token - begin);
}

}  // namespace megatrain
