// Attention through cuDNN's fused kernels: bf16, forward and the deterministic backward.
//
// Documents of one length go to cuDNN as they lie. Unequal ones are copied into padded documents of a few lengths
// (attention_buckets.h), call by call, and their results copied back.
//
// The deterministic backward is cut into calls of bounded scratch (attention_cut.h).
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <vector>

#include "megatrain/ops/attention.h"
#include "megatrain/ops/attention_cut.h"
#include "megatrain/ops/cuda/attention_graph.h"
#include "megatrain/ops/cuda/scratch.h"

namespace megatrain {

class CudnnAttention {
 public:
  explicit CudnnAttention(Scratch& scratch) : scratch_(scratch) {}

  // False, with nothing enqueued, when cuDNN does not take the case or the documents are too short to gain by it.
  bool forward(const AttentionForward& args, cudaStream_t stream);
  bool backward(const AttentionBackward& args, cudaStream_t stream);

  // Scratch for any documents of up to `longest` tokens, at most `documents` of them, when q, k and v (and their
  // gradients) are columns of one (tokens, (heads + 2 kv_heads) * head_dim) matrix each. 0 when cuDNN does not take the
  // case.
  int64_t scratch_bytes(const AttentionShape& shape, int64_t documents, int64_t longest);

  // Builds the graphs of every call that documents of unequal length can need, so that no step does.
  void prepare(const AttentionShape& shape, int64_t documents, int64_t longest);

 private:
  using Views = std::array<View, kAttentionTensors>;  // kStats: only data
  // Over documents of one length.
  struct Pass {
    AttentionShape shape;
    int64_t documents, length;
    bool backward;
    AttentionCut cut;
    AttentionStrides strides;

    static Pass of(const AttentionShape& shape, int64_t documents, int64_t length, bool backward,
                   const AttentionStrides& strides);
    std::vector<AttentionCase> cases() const;
  };

  bool run(const AttentionShape& shape, const Documents& documents, bool backward, const Views& views,
           cudaStream_t stream);
  bool run_uniform(const AttentionShape& shape, const Documents& documents, bool backward, const Views& views,
                   cudaStream_t stream);
  bool run_buckets(const AttentionShape& shape, const Documents& documents, bool backward, const Views& views,
                   cudaStream_t stream);

  int64_t pass_bytes(const Pass& pass);
  void execute(const Pass& pass, const Views& views, std::byte* scratch, cudaStream_t stream);
  struct Tiled;
  void execute_tiles(const Tiled& tiled);
  void execute_pieces(const Tiled& tiled);
  void execute_tile(const Tiled& tiled, const AttentionCase& c, int64_t query, int64_t key, void* grad_out);
  std::array<void*, kAttentionTensors> call_data(const Pass& pass, const Views& views, int64_t query, int64_t key,
                                                 int64_t kv_head) const;

  Scratch& scratch_;
  AttentionGraphs graphs_;
};

}  // namespace megatrain
