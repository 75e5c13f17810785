// Attention through cuDNN's fused kernels: bf16, forward and the deterministic backward.
//
// Documents of one length are passed to cuDNN in place. Unequal ones are grouped into calls over documents of similar
// length (attention_buckets.h): in place or, if cuDNN does not support that, copied into padded documents and back.
//
// The deterministic backward and the forward of long documents are cut into calls (attention_cut.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "megatrain/ops/attention.h"
#include "megatrain/ops/attention_buckets.h"
#include "megatrain/ops/cuda/attention/pass.h"
#include "megatrain/device/cuda/scratch.h"

namespace megatrain {

class CudnnAttention {
 public:
  explicit CudnnAttention(Scratch& scratch) : scratch_(scratch) {}

  // False, with nothing enqueued, if cuDNN does not support the case or the documents are too short to benefit.
  bool forward(const AttentionForward& args, cudaStream_t stream);
  bool backward(const AttentionBackward& args, cudaStream_t stream);

  // Scratch for at most `documents` documents of up to `longest` tokens; 0 if cuDNN does not support the case. q, k and
  // v must be columns of one (tokens, (heads + 2 kv_heads) * head_dim) matrix, and so must their gradients.
  int64_t scratch_bytes(const AttentionShape& shape, int64_t documents, int64_t longest);

  // Builds the graphs of every call that documents of unequal length can need, so that no step has to.
  void prepare(const AttentionShape& shape, int64_t documents, int64_t longest);

 private:
  bool run(const AttentionShape& shape, const Documents& documents, bool backward, const AttentionViews& views,
           cudaStream_t stream);
  bool run_uniform(const AttentionShape& shape, const Documents& documents, bool backward, const AttentionViews& views,
                   cudaStream_t stream);
  bool run_buckets(const AttentionShape& shape, const Documents& documents, bool backward, const AttentionViews& views,
                   cudaStream_t stream);

  void run_ragged(const AttentionPass& pass, const Documents& documents, const Buckets& buckets, const BucketCall& call,
                  const AttentionViews& views, std::byte* memory, cudaStream_t stream);
  void run_padded(const AttentionPass& pass, const Documents& documents, const Buckets& buckets, const BucketCall& call,
                  const AttentionViews& views, std::byte* memory, cudaStream_t stream);

  bool takes_ragged(const AttentionShape& shape, const AttentionStrides& strides);
  AttentionPass pass_of(const AttentionShape& shape, int64_t length, BucketForm form, bool backward,
                        const AttentionStrides& strides) const;
  std::vector<AttentionPass> bucket_passes(const AttentionShape& shape, int64_t longest, bool backward);

  Scratch& scratch_;
  AttentionPasses passes_;
};

}  // namespace megatrain
