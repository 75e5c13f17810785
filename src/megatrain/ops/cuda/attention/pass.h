// One direction of attention, as calls of cuDNN, over documents of one length or over those of one ragged call.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <vector>

#include "megatrain/ops/attention.h"
#include "megatrain/ops/attention_cut.h"
#include "megatrain/ops/cuda/attention/graph.h"

namespace megatrain {

using AttentionViews = std::array<View, kAttentionTensors>;  // kStats has only data

struct AttentionPass {
  AttentionShape shape;
  int64_t documents, length;
  bool backward;
  AttentionCut cut;
  AttentionStrides strides;

  // Adjacent documents of one length.
  static AttentionPass of(const AttentionShape& shape, int64_t documents, int64_t length, bool backward,
                          AttentionStrides strides);
  // Documents of up to `length` tokens at arbitrary places (see ragged_cut()).
  static AttentionPass ragged_of(const AttentionShape& shape, int64_t length, bool backward, AttentionStrides strides);

  bool ragged() const { return strides[kStats] > 0; }
  std::vector<AttentionCase> cases() const;
  // An upper bound of its scratch, without asking cuDNN.
  int64_t bytes_bound() const;
};

class AttentionPasses {
 public:
  // Scratch of a pass; AttentionGraphs::kRefused if cuDNN does not support one of its cases.
  int64_t bytes(const AttentionPass& pass);

  // Builds the graphs of these passes in parallel.
  void prepare(const std::vector<AttentionPass>& passes);

  // Enqueues every call. For a ragged pass, `views` are the micro-batch's, and `places` is as in
  // AttentionGraphs::execute.
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
