// Attention through cuDNN's fused kernels: bf16, forward and the deterministic backward.
//
// The deterministic backward keeps a (queries, keys) bf16 matrix for every head it works on, so it is given as many
// documents, or key heads of one document, at a time as fit kPairsBytes. Plans are built once for each shape and kept.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "megatrain/ops/attention.h"
#include "megatrain/ops/cuda/scratch.h"

namespace megatrain {

class CudnnAttention {
 public:
  explicit CudnnAttention(Scratch& scratch);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // False, with nothing enqueued, when cuDNN does not take the case.
  bool forward(const AttentionForward& args, cudaStream_t stream);
  bool backward(const AttentionBackward& args, cudaStream_t stream);

  // Scratch for documents of up to `longest` tokens, at most `documents` of them, when q, k and v (and their gradients)
  // are columns of one (tokens, (heads + 2 kv_heads) * head_dim) matrix each. 0 when cuDNN does not take the case.
  int64_t scratch_bytes(const AttentionShape& shape, int64_t documents, int64_t longest);

 private:
  class Plans;
  Scratch& scratch_;
  std::unique_ptr<Plans> plans_;
};

}  // namespace megatrain
