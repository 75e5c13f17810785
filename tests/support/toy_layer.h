// A layer with two phases over two records of different sizes, and with another width between them:
//
//   a = gate_up(norm(x))      (T, H) -> (T, 2W)    record 0: norm, gate_up
//   y = down(swiglu(a))       (T, 2W) -> (T, H)    record 1: down
//
// A phase keeps either nothing or everything that it computes.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/model/layers/carve.h"
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/model.h"

namespace megatrain::toy {

enum ToyOperand : int { kNorm, kGateUp, kDown };

inline constexpr Keep kEverything{1};  // index in toy_levels()
inline std::vector<KeepLevel> toy_levels(int64_t bytes) {
  return {{.name = "nothing", .recomputed = "all"}, {.name = "everything", .recomputed = "none", .bytes = bytes}};
}

class First final : public Phase {
 public:
  First(const ModelShape& shape, const LayerLayout& record)
      : shape_(shape), norm_(find_operand(record, kNorm)), gate_up_(record, kGateUp) {}

  std::vector<int64_t> records() const override { return {0}; }
  int64_t in_width() const override { return norm_.cols; }
  int64_t out_width() const override { return gate_up_.out_width(); }
  int64_t workspace_bytes() const override { return carve(nullptr, Keep::nothing, nullptr, shape_.tokens).bytes; }
  std::vector<KeepLevel> keep_levels() const override {
    return toy_levels(carve(nullptr, kEverything, nullptr, shape_.tokens).kept);
  }
  int64_t decode_workspace_bytes(int64_t tokens) const override {
    return carve(nullptr, Keep::nothing, nullptr, tokens).bytes;
  }

  void forward(Ops& ops, Stream& stream, const Forward& a) const override {
    const Work w = carve(a.workspace, a.keep, a.kept, a.x.rows);
    normalise(ops, stream, a.weights[0], a.x, w);
    gate_up_.forward({ops, stream, a.weights[0]}, w.normed, {}, a.y);
  }

  void backward(Ops& ops, Stream& stream, const Backward& a) const override {
    const Work w = carve(a.workspace, a.keep, a.kept, a.x.rows);
    if (a.keep < kEverything) normalise(ops, stream, a.weights[0], a.x, w);
    const Binding at{ops, stream, a.weights[0], a.weight_grads[0], a.accumulate};
    gate_up_.backward_weight(at, a.grad_y, w.normed);
    gate_up_.backward_input(at, a.grad_y, w.grad_normed);
    ops.rmsnorm_backward(stream, {.x = a.x,
                                  .weight = norm_.weight(a.weights[0]),
                                  .inv_rms = w.inv_rms,
                                  .grad_out = w.grad_normed,
                                  .residual = {},
                                  .grad_x = a.grad_x,
                                  .grad_weight = norm_.gradient(a.weight_grads[0]),
                                  .accumulate = a.accumulate});
  }

  void decode(Ops& ops, Stream& stream, const Decode& a) const override {
    forward(
        ops, stream,
        {.weights = a.weights, .x = a.x, .y = a.y, .micro_batch = {}, .tables = a.tables, .workspace = a.workspace});
  }

 private:
  struct Work {
    View normed;       // (T, H)
    float* inv_rms;    // (T)
    View grad_normed;  // (T, H)
    int64_t bytes, kept;
  };
  Work carve(std::byte* workspace, Keep keep, std::byte* kept, int64_t tokens) const {
    Carver work(workspace), keeping(kept);
    Carver& inner = keep == kEverything ? keeping : work;
    Work w{};
    w.normed = inner.view(shape_.dtype, tokens, norm_.cols);
    w.inv_rms = inner.array<float>(tokens);
    w.grad_normed = work.view(shape_.dtype, tokens, norm_.cols);
    w.bytes = work.bytes();
    w.kept = keeping.bytes();
    return w;
  }
  void normalise(Ops& ops, Stream& stream, std::byte* slab, const View& x, const Work& w) const {
    ops.rmsnorm_forward(stream,
                        {.x = x, .weight = norm_.weight(slab), .eps = 1e-6f, .out = w.normed, .inv_rms = w.inv_rms});
  }

  ModelShape shape_;
  WeightOperand norm_;
  Linear gate_up_;
};

class Second final : public Phase {
 public:
  Second(const ModelShape& shape, const LayerLayout& record) : shape_(shape), down_(record, kDown) {}

  std::vector<int64_t> records() const override { return {1}; }
  int64_t in_width() const override { return 2 * down_.in_width(); }
  int64_t out_width() const override { return down_.out_width(); }
  int64_t workspace_bytes() const override { return carve(nullptr, Keep::nothing, nullptr, shape_.tokens).bytes; }
  std::vector<KeepLevel> keep_levels() const override {
    return toy_levels(carve(nullptr, kEverything, nullptr, shape_.tokens).kept);
  }
  int64_t decode_workspace_bytes(int64_t tokens) const override {
    return carve(nullptr, Keep::nothing, nullptr, tokens).bytes;
  }

  void forward(Ops& ops, Stream& stream, const Forward& a) const override {
    const Work w = carve(a.workspace, a.keep, a.kept, a.x.rows);
    ops.gated_forward(stream, {.gate_up = a.x, .out = w.act});
    down_.forward({ops, stream, a.weights[0]}, w.act, {}, a.y);
  }

  void backward(Ops& ops, Stream& stream, const Backward& a) const override {
    const Work w = carve(a.workspace, a.keep, a.kept, a.x.rows);
    const Binding at{ops, stream, a.weights[0], a.weight_grads[0], a.accumulate};
    down_.backward_input(at, a.grad_y, w.grad_act);
    ops.gated_backward(stream, {.gate_up = a.x,
                                .grad_out = w.grad_act,
                                .grad_gate_up = a.grad_x,
                                .out = a.keep < kEverything ? w.act : View{}});
    down_.backward_weight(at, a.grad_y, w.act);
  }

  void decode(Ops& ops, Stream& stream, const Decode& a) const override {
    forward(
        ops, stream,
        {.weights = a.weights, .x = a.x, .y = a.y, .micro_batch = {}, .tables = a.tables, .workspace = a.workspace});
  }

 private:
  struct Work {
    View act;       // (T, W)
    View grad_act;  // (T, W)
    int64_t bytes, kept;
  };
  Work carve(std::byte* workspace, Keep keep, std::byte* kept, int64_t tokens) const {
    Carver work(workspace), keeping(kept);
    Work w{};
    w.act = (keep == kEverything ? keeping : work).view(shape_.dtype, tokens, down_.in_width());
    w.grad_act = work.view(shape_.dtype, tokens, down_.in_width());
    w.bytes = work.bytes();
    w.kept = keeping.bytes();
    return w;
  }

  ModelShape shape_;
  Linear down_;
};

// `name` is the prefix of the tensors' names.
inline Layer make_layer(const std::string& name, int64_t hidden, int64_t width, const ModelShape& shape) {
  const DType dtype = shape.dtype;
  Layer layer;
  layer.kind = "toy";
  layer.records.push_back(make_layout(
      {{.name = name + ".norm.weight",
        .rows = 1,
        .cols = hidden,
        .role = TensorRole::norm,
        .operand = kNorm,
        .dtype = dtype},
       {.name = name + ".gate_up.weight", .rows = 2 * width, .cols = hidden, .operand = kGateUp, .dtype = dtype}}));
  layer.records.push_back(
      make_layout({{.name = name + ".down.weight", .rows = hidden, .cols = width, .operand = kDown, .dtype = dtype}}));
  layer.phases.push_back(std::make_unique<First>(shape, layer.records[0]));
  layer.phases.push_back(std::make_unique<Second>(shape, layer.records[1]));
  return layer;
}

// The configuration's model with every second layer, starting with layer 1, replaced by a toy layer of width 3/4
// hidden.
inline Model make_model(const ModelConfig& config, const ModelShape& shape) {
  Model model = megatrain::make_model(config, shape);
  for (size_t l = 1; l < model.layers.size(); l += 2)
    model.layers[l] = make_layer("toy." + std::to_string(l), config.hidden, config.hidden * 3 / 4, shape);
  return model;
}

}  // namespace megatrain::toy
