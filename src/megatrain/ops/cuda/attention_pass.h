// One direction of attention over documents of one length, or over a ragged call's, as calls of cuDNN.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <vector>

#include "megatrain/ops/attention.h"
#include "megatrain/ops/attention_cut.h"
#include "megatrain/ops/cuda/attention_graph.h"

namespace megatrain {

using AttentionViews = std::array<View, kAttentionTensors>;  // kStats: only data

struct AttentionPass {
  AttentionShape shape;
  int64_t documents, length;
  bool backward;
  AttentionCut cut;
  AttentionStrides strides;

  // Documents of one length, one behind the other.
  static AttentionPass of(const AttentionShape& shape, int64_t documents, int64_t length, bool backward,
                          AttentionStrides strides);
  // Documents of up to `length` tokens that lie anywhere (ragged_cut() of them).
  static AttentionPass ragged_of(const AttentionShape& shape, int64_t length, bool backward, AttentionStrides strides);

  bool ragged() const { return strides[kStats] > 0; }
  std::vector<AttentionCase> cases() const;
  // What its scratch comes to, by arithmetic.
  int64_t bytes_bound() const;
};

class AttentionPasses {
 public:
  // Scratch of a pass; AttentionGraphs::kRefused when cuDNN does not take one of its cases.
  int64_t bytes(const AttentionPass& pass);

  // Builds the graphs of these passes at once.
  void prepare(const std::vector<AttentionPass>& passes);

  // Enqueues every call. `views` of a ragged pass are the micro-batch's; `places` as AttentionGraphs::execute has them.
  void execute(const AttentionPass& pass, const AttentionViews& views, std::byte* scratch, cudaStream_t stream,
               int32_t* places = nullptr);

 private:
  struct Part;
  struct Gradients;
  void execute_forward_tiles(const Part& part);
  void execute_tiles(const Gradients& part);
  void execute_pieces(const Gradients& part);

  AttentionGraphs graphs_;
};

}  // namespace megatrain
