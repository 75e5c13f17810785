// A layer with a table of its own, as per-layer embeddings have it:
//
//   r_t = table[token_t]      (T, W)    record 1: table (V, W), looked up
//   y = x + out(r)            (T, H)    record 0: out (H, W), needed whole
//
// The backward of `out` looks the rows up again.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/model/layers/carve.h"
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/model.h"

namespace megatrain::toy {

class TableLookup final : public Phase {
 public:
  TableLookup(const ModelShape& shape, const LayerLayout& record, int64_t width)
      : shape_(shape), out_(record, 0), width_(width) {}

  std::vector<int64_t> records() const override { return {0, 1}; }
  std::optional<int64_t> looks_up() const override { return 1; }
  int64_t in_width() const override { return out_.out_width(); }
  int64_t out_width() const override { return out_.out_width(); }
  int64_t workspace_bytes() const override { return carve(nullptr, shape_.tokens).bytes; }

  void forward(Ops& ops, Stream& stream, const Forward& a) const override {
    const Work work = carve(a.workspace, a.x.rows);
    ops.embedding_forward(stream, {.table = a.rows, .index = a.micro_batch.row, .out = work.rows});
    out_.forward({ops, stream, a.weights[0]}, work.rows, a.x, a.y);
  }
  void backward(Ops& ops, Stream& stream, const Backward& a) const override {
    const Work work = carve(a.workspace, a.x.rows);
    const MicroBatchView& micro = a.micro_batch;
    const Binding at{ops, stream, a.weights[0], a.weight_grads[0], a.accumulate};
    ops.embedding_forward(stream, {.table = a.rows, .index = micro.row, .out = work.rows});
    out_.backward_weight(at, a.grad_y, work.rows);
    if (!a.row_grads.empty()) {
      out_.backward_input(at, a.grad_y, work.grad_rows);
      if (!a.accumulate) stream.zero(a.row_grads.data, static_cast<size_t>(a.row_grads.bytes()));
      ops.embedding_backward(stream, {.grad_out = work.grad_rows,
                                      .order = micro.segment_order,
                                      .begin = micro.segment_begin,
                                      .row = micro.segment_row,
                                      .segments = micro.segments,
                                      .grad = a.row_grads});
    }
    if (a.grad_x.data != a.grad_y.data)
      stream.copy(a.grad_x.data, a.grad_y.data, static_cast<size_t>(a.grad_y.bytes()));
  }

  int64_t decode_workspace_bytes(int64_t) const override { return 0; }
  void decode(Ops& ops, Stream& stream, const Decode& a) const override {
    out_.forward({ops, stream, a.weights[0]}, a.rows, a.x, a.y);
  }

 private:
  struct Work {
    View rows, grad_rows;  // (T, W)
    int64_t bytes;
  };
  Work carve(std::byte* workspace, int64_t tokens) const {
    Carver work(workspace);
    Work made;
    made.rows = work.view(shape_.dtype, tokens, width_);
    made.grad_rows = work.view(shape_.dtype, tokens, width_);
    made.bytes = work.bytes();
    return made;
  }

  ModelShape shape_;
  Linear out_;
  int64_t width_;
};

inline Layer table_layer(const std::string& name, const ModelConfig& config, const ModelShape& shape, int64_t width,
                         bool trained = true) {
  Layer layer;
  layer.kind = name;
  layer.records.push_back(make_layout(
      {{.name = name + ".out.weight", .rows = config.hidden, .cols = width, .operand = 0, .dtype = shape.dtype}}));
  layer.records.push_back(make_layout({{.name = name + ".table.weight",
                                        .rows = config.vocab,
                                        .cols = width,
                                        .role = TensorRole::embedding,
                                        .dtype = shape.dtype,
                                        .trainable = trained}}));
  layer.phases.push_back(std::make_unique<TableLookup>(shape, layer.records[0], width));
  return layer;
}

}  // namespace megatrain::toy
