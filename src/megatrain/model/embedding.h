// The embedding: phase 0 of a model, over record 0. Rows of its table are looked up; the table itself never streams.
// Single rows may be trained beside the frozen table (token_rows.h).
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/layers/layer.h"
#include "megatrain/model/token_rows.h"

namespace megatrain {

inline std::vector<TensorSpec> embedding_tensors(const ModelConfig& config) {
  return {{.name = config.embedding_module + ".weight",
           .rows = config.vocab,
           .cols = config.hidden,
           .role = TensorRole::embedding}};
}

class Embedding final : public Phase {
 public:
  // `token_rows`: the record of trained rows, or nullptr.
  Embedding(const ModelConfig& config, const ModelShape& shape, LayerLayout record,
            const LayerLayout* token_rows = nullptr)
      : record_(std::move(record)),
        scale_(embedding_scale(config.embedding_scale, shape.dtype)),
        rows_(find_token_rows(token_rows, kEmbeddingModule)),
        tied_(config.tied) {}

  // Its table and, if some rows are trained, the record of these.
  std::vector<int64_t> records() const override {
    return rows_.any() ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0};
  }
  std::optional<int64_t> looks_up() const override { return 0; }
  int64_t in_width() const override { return 0; }
  int64_t out_width() const override { return table().cols; }
  int64_t workspace_bytes() const override { return 0; }
  void forward(Ops& ops, Stream& stream, const Forward& a) const override {
    look_up(ops, stream, {.table = a.rows, .index = a.micro_batch.row, .out = a.y});
    if (rows_.any()) replace_rows(ops, stream, a.weights[0], a.micro_batch.token_rows.slot, a.y);
  }
  void backward(Ops& ops, Stream& stream, const Backward& a) const override {
    const MicroBatchView& micro = a.micro_batch;
    if (!a.row_grads.empty())
      add_segments(ops, stream, a,
                   {.grad_out = a.grad_y,
                    .order = micro.segment_order,
                    .begin = micro.segment_begin,
                    .row = micro.segment_row,
                    .segments = micro.segments,
                    .grad = a.row_grads});
    if (rows_.any())
      add_segments(ops, stream, a,
                   {.grad_out = a.grad_y,
                    .order = micro.token_rows.order,
                    .begin = micro.token_rows.begin,
                    .row = micro.token_rows.row,
                    .segments = micro.token_rows.segments,
                    .grad = rows_.weight.gradient(a.weight_grads[0])});
  }
  bool decodes() const override { return false; }
  int64_t decode_workspace_bytes(int64_t) const override { return 0; }
  void decode(Ops&, Stream&, const Decode&) const override {}

  const LayerLayout& record() const { return record_; }
  const TensorSpec& table() const { return record_.tensors.front(); }
  const TokenRows& token_rows() const { return rows_; }
  // The head adds to the gradient of the trained rows too.
  bool shares_token_rows() const { return tied_ && rows_.any(); }

  float scale() const { return scale_; }

  // Sets args.scale to the embedding's scale.
  void look_up(Ops& ops, Stream& stream, EmbeddingForward args) const {
    args.scale = scale_;
    ops.embedding_forward(stream, args);
  }
  // Writes trained rows over those of `out` (T, H) whose slot is not negative. `weights`: the record of these rows.
  void replace_rows(Ops& ops, Stream& stream, std::byte* weights, const int32_t* slot, const View& out) const {
    look_up(ops, stream, {.table = rows_.weight.weight(weights), .index = slot, .out = out});
  }

 private:
  void add_segments(Ops& ops, Stream& stream, const Backward& a, EmbeddingBackward args) const {
    if (!a.accumulate) stream.zero(args.grad.data, static_cast<size_t>(args.grad.bytes()));
    if (args.segments == 0) return;  // only padding, or only tokens without a trained row
    args.scale = scale_;
    ops.embedding_backward(stream, args);
  }

  LayerLayout record_;
  float scale_;
  TokenRows rows_;
  bool tied_;
};

}  // namespace megatrain
