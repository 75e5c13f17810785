// Layers of one phase that share an activation s:
//
//   the giver    s = key(x), y = x + out(s)     x, y: (T, H)  s: (T, W)
//   a taker      y = own(x) + from(s)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatrain/model/layers/linear.h"
#include "megatrain/model/model.h"

namespace megatrain::toy {

enum SharingOperand : int { kFirst, kSecond };  // key and out, own and from

// Common to both: two matmuls, and no inner activations kept.
class Sharing : public Phase {
 public:
  explicit Sharing(const LayerLayout& record) : first_(record, kFirst), second_(record, kSecond) {}

  std::vector<int64_t> records() const override { return {0}; }
  int64_t in_width() const override { return first_.in_width(); }
  int64_t out_width() const override { return second_.out_width(); }
  int64_t workspace_bytes() const override { return 256; }
  int64_t decode_workspace_bytes(int64_t) const override { return 0; }
  void decode(Ops&, Stream&, const Decode&) const override {}

 protected:
  static Binding bind(Ops& ops, Stream& stream, const Backward& a) {
    return {ops, stream, a.weights[0], a.weight_grads[0], a.accumulate};
  }
  Linear first_, second_;
};

class Giver final : public Sharing {
 public:
  using Sharing::Sharing;
  int64_t shared_width() const override { return first_.out_width(); }

  void forward(Ops& ops, Stream& stream, const Forward& a) const override {
    const Binding at{ops, stream, a.weights[0]};
    first_.forward(at, a.x, {}, a.shared.made);
    second_.forward(at, a.shared.made, a.x, a.y);
  }
  void backward(Ops& ops, Stream& stream, const Backward& a) const override {
    const Binding at = bind(ops, stream, a);
    second_.backward_weight(at, a.grad_y, a.shared.made);
    second_.backward_input(at, a.grad_y, a.shared.grad_made, true);
    if (a.grad_x.data != a.grad_y.data)
      stream.copy(a.grad_x.data, a.grad_y.data, static_cast<size_t>(a.grad_y.bytes()));
    first_.backward_weight(at, a.shared.grad_made, a.x);
    first_.backward_input(at, a.shared.grad_made, a.grad_x, true);
  }
};

class Taker final : public Sharing {
 public:
  Taker(const LayerLayout& record, int64_t layer, int64_t width) : Sharing(record), layer_(layer), width_(width) {}
  std::optional<SharedRead> reads_shared() const override { return SharedRead{.layer = layer_, .width = width_}; }
  int64_t workspace_bytes() const override { return 1 << 20; }

  void forward(Ops& ops, Stream& stream, const Forward& a) const override {
    const Binding at{ops, stream, a.weights[0]};
    first_.forward(at, a.x, {}, a.y);
    second_.forward(at, a.shared.read, a.y, a.y);
  }
  void backward(Ops& ops, Stream& stream, const Backward& a) const override {
    const Binding at = bind(ops, stream, a);
    second_.backward_weight(at, a.grad_y, a.shared.read);
    if (!a.shared.grad_read.empty()) second_.backward_input(at, a.grad_y, a.shared.grad_read, true);
    first_.backward_weight(at, a.grad_y, a.x);
    // grad_x may be grad_y itself, which the matmul reads.
    const View grad_x = matrix(a.workspace, a.grad_x.dtype, a.grad_x.rows, a.grad_x.cols);
    first_.backward_input(at, a.grad_y, grad_x);
    stream.copy(a.grad_x.data, grad_x.data, static_cast<size_t>(grad_x.bytes()));
  }

 private:
  int64_t layer_, width_;
};

// A layer with one record, which holds the matrices `first` and `second`.
inline Layer sharing_layer(const std::string& name, DType dtype, int64_t rows, int64_t cols, int64_t second_cols,
                           int64_t hidden) {
  Layer layer;
  layer.kind = name;
  layer.records.push_back(make_layout(
      {{.name = name + ".first.weight", .rows = rows, .cols = cols, .operand = kFirst, .dtype = dtype},
       {.name = name + ".second.weight", .rows = hidden, .cols = second_cols, .operand = kSecond, .dtype = dtype}}));
  return layer;
}
inline Layer giver_layer(const std::string& name, int64_t hidden, int64_t width, DType dtype) {
  Layer layer = sharing_layer(name, dtype, width, hidden, width, hidden);
  layer.phases.push_back(std::make_unique<Giver>(layer.records[0]));
  return layer;
}
inline Layer taker_layer(const std::string& name, int64_t hidden, int64_t width, DType dtype, int64_t from) {
  Layer layer = sharing_layer(name, dtype, hidden, hidden, width, hidden);
  layer.phases.push_back(std::make_unique<Taker>(layer.records[0], from, width));
  return layer;
}

}  // namespace megatrain::toy
