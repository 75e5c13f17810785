// The embedding: phase 0 of a model, over record 0. Rows of its table are looked up; the table itself never streams.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "megatrain/model/config.h"
#include "megatrain/model/layer.h"

namespace megatrain {

inline std::vector<TensorSpec> embedding_tensors(const ModelConfig& config) {
  return {{.name = "model.embed_tokens.weight",
           .rows = config.vocab,
           .cols = config.hidden,
           .role = TensorRole::embedding}};
}

class Embedding final : public Phase {
 public:
  Embedding(const ModelConfig& config, const ModelShape& shape, LayerLayout record)
      : record_(std::move(record)), scale_(embedding_scale(config.embedding_scale, shape.dtype)) {}

  std::vector<int64_t> records() const override { return {0}; }
  std::optional<int64_t> looks_up() const override { return 0; }
  int64_t in_width() const override { return 0; }
  int64_t out_width() const override { return table().cols; }
  int64_t workspace_bytes() const override { return 0; }
  void forward(Ops& ops, Stream& stream, const Forward& a) const override {
    look_up(ops, stream, {.table = a.rows, .index = a.micro_batch.row, .out = a.y});
  }
  void backward(Ops& ops, Stream& stream, const Backward& a) const override {
    const MicroBatchView& micro = a.micro_batch;
    if (!a.accumulate) stream.zero(a.row_grads.data, static_cast<size_t>(a.row_grads.bytes()));
    if (micro.segments == 0) return;  // only padding
    ops.embedding_backward(stream, {.grad_out = a.grad_y,
                                    .order = micro.segment_order,
                                    .begin = micro.segment_begin,
                                    .row = micro.segment_row,
                                    .segments = micro.segments,
                                    .scale = scale_,
                                    .grad = a.row_grads});
  }
  bool decodes() const override { return false; }
  int64_t decode_workspace_bytes(int64_t) const override { return 0; }
  void decode(Ops&, Stream&, const Decode&) const override {}

  const LayerLayout& record() const { return record_; }
  const TensorSpec& table() const { return record_.tensors.front(); }

  float scale() const { return scale_; }

  // Sets args.scale to the embedding's scale.
  void look_up(Ops& ops, Stream& stream, EmbeddingForward args) const {
    args.scale = scale_;
    ops.embedding_forward(stream, args);
  }

 private:
  LayerLayout record_;
  float scale_;
};

}  // namespace megatrain
