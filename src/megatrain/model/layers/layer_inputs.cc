#include "megatrain/model/layers/layer_inputs.h"

#include <algorithm>
#include <cmath>

#include "megatrain/base/error.h"
#include "megatrain/model/layers/carve.h"

namespace megatrain {

namespace {

int64_t chunk_of(const ModelShape& shape, int64_t tokens) {
  return shape.mlp_chunk > 0 ? std::min(shape.mlp_chunk, tokens) : tokens;
}

std::vector<TokenRange> ranges_of(const ModelShape& shape, int64_t tokens) {
  std::vector<TokenRange> list;
  const int64_t chunk = chunk_of(shape, tokens);
  for (int64_t begin = 0; begin < tokens; begin += chunk) list.push_back({begin, std::min(chunk, tokens - begin)});
  return list;
}

std::vector<int64_t> list_of(const LayerInputRecords& at) {
  std::vector<int64_t> list = {at.weights};
  for (const auto& more : {at.adapters, at.table}) {
    if (more) list.push_back(*more);
  }
  return list;
}

std::byte* carve_adapters(Carver& carver, const LayerLayout& adapters, int64_t tokens) {
  return adapters.tensors.empty() ? nullptr : carver.array<std::byte>(adapter_scratch_bytes(adapters, tokens));
}

// The binding of the first record, and of its adapters in the second.
template <class Args>
Binding bind(Ops& ops, Stream& stream, const Args& a, const LayerInputRecords& records, std::byte* scratch) {
  Binding at{ops, stream, a.weights.front()};
  if (records.adapters) at.adapter = {.weights = a.weights[1], .scratch = scratch};
  if constexpr (requires { a.micro_batch; }) at.adapter.random = a.micro_batch.random;
  if constexpr (requires { a.weight_grads; }) {
    at.gradients = a.weight_grads.front();
    at.accumulate = a.accumulate;
    if (records.adapters) at.adapter.gradients = a.weight_grads[1];
  }
  return at;
}

}  // namespace

struct LayerInputs::Work {
  View projected;  // (C, L P)
  View rows;       // (C, L P) of the table; in backward, the gradient of `projected`
  float* inv_rms;  // (C * L)
  std::byte* adapters;
  int64_t bytes;

  View part(const View& view, const TokenRange& range) const { return view.slice_rows(0, range.count); }
};

LayerInputs::LayerInputs(const ModelConfig& config, const ModelShape& shape, const LinearTensors& from,
                         const LayerInputRecords& records)
    : shape_(shape),
      at_(records),
      adapters_(from.adapters ? *from.adapters : LayerLayout()),
      project_(Linear(from, LayerInputOperand::project).times(1 / std::sqrt(static_cast<double>(config.hidden)))),
      norm_(from.record, LayerInputOperand::project_norm, norm_shape(config)),
      scale_(embedding_scale(std::sqrt(static_cast<double>(config.layer_input)), shape.dtype)) {
  ensure(at_.table.has_value() && norm_.exists(), "inputs of layers have a table and a norm");
}

std::vector<int64_t> LayerInputs::records() const { return list_of(at_); }

LayerInputs::Work LayerInputs::carve(std::byte* workspace, int64_t tokens) const {
  Carver carver(workspace);
  Work w{};
  w.projected = carver.view(shape_.dtype, tokens, shared_width());
  w.rows = carver.view(shape_.dtype, tokens, shared_width());
  w.inv_rms = carver.array<float>(tokens * (shared_width() / norm_.width()));
  w.adapters = carve_adapters(carver, adapters_, tokens);
  w.bytes = carver.bytes();
  return w;
}

int64_t LayerInputs::workspace_bytes() const { return carve(nullptr, chunk_of(shape_, shape_.tokens)).bytes; }

void LayerInputs::forward(Ops& ops, Stream& stream, const Forward& a) const {
  const Work w = carve(a.workspace, chunk_of(shape_, a.x.rows));
  const Binding whole = bind(ops, stream, a, at_, w.adapters);
  for (const TokenRange& range : ranges_of(shape_, a.x.rows)) {
    const Binding at = whole.at(range);
    const View projected = w.part(w.projected, range), rows = w.part(w.rows, range);
    project_.forward(at, a.x.slice_rows(range.begin, range.count), {}, projected);
    ops.embedding_forward(stream,
                          {.table = a.rows, .index = a.micro_batch.row + range.begin, .scale = scale_, .out = rows});
    norm_.forward(at, projected, a.shared.made.slice_rows(range.begin, range.count), w.inv_rms, rows);
  }
  stream.copy(a.y.data, a.x.data, static_cast<size_t>(a.x.bytes()));
}

void LayerInputs::backward(Ops& ops, Stream& stream, const Backward& a) const {
  const Work w = carve(a.workspace, chunk_of(shape_, a.x.rows));
  const Binding whole = bind(ops, stream, a, at_, w.adapters);
  if (a.grad_x.data != a.grad_y.data) stream.copy(a.grad_x.data, a.grad_y.data, static_cast<size_t>(a.grad_y.bytes()));
  for (const TokenRange& range : ranges_of(shape_, a.x.rows)) {
    const Binding at = whole.at(range);
    const View x = a.x.slice_rows(range.begin, range.count), grad_x = a.grad_x.slice_rows(range.begin, range.count);
    const View projected = w.part(w.projected, range), grad = w.part(w.rows, range);
    project_.forward(at, x, {}, projected);
    norm_.forward(at, projected, grad, w.inv_rms);
    norm_.backward(at, {.x = projected,
                        .inv_rms = w.inv_rms,
                        .grad_out = a.shared.grad_made.slice_rows(range.begin, range.count),
                        .grad_x = grad});
    project_.backward_weight(at, grad, x);
    project_.backward_input(at, grad, grad_x, true);
  }
  if (a.row_grads.empty()) return;
  const MicroBatchView& micro = a.micro_batch;
  if (!a.accumulate) stream.zero(a.row_grads.data, static_cast<size_t>(a.row_grads.bytes()));
  if (micro.segments == 0) return;
  ops.embedding_backward(stream, {.grad_out = a.shared.grad_made,
                                  .order = micro.segment_order,
                                  .begin = micro.segment_begin,
                                  .row = micro.segment_row,
                                  .segments = micro.segments,
                                  .scale = scale_,
                                  .grad = a.row_grads});
}

int64_t LayerInputs::cache_bytes(int64_t /*sequences*/, int64_t /*context*/) const {
  return round_up(shape_.tokens * shared_width() * dtype_bytes(shape_.dtype), 256);
}

int64_t LayerInputs::decode_workspace_bytes(int64_t tokens) const { return carve(nullptr, tokens).bytes; }

void LayerInputs::decode(Ops& ops, Stream& stream, const Decode& a) const {
  const Work w = carve(a.workspace, a.tokens.tokens);
  const Binding at = bind(ops, stream, a, at_, w.adapters);
  project_.forward(at, a.x, {}, w.projected);
  ops.scale_all(stream, {.x = a.rows, .times = scale_, .out = w.rows});
  norm_.forward(at, w.projected, matrix(a.cache.bytes, shape_.dtype, a.tokens.tokens, shared_width()), w.inv_rms,
                w.rows);
  if (a.y.data != a.x.data) stream.copy(a.y.data, a.x.data, static_cast<size_t>(a.x.bytes()));
}

struct LayerInput::Work {
  View gate_up;     // (C, 2 P) gate, then p_l
  View act;         // (C, P)
  View added;       // (C, H) before its norm
  View grad_added;  // (C, H)
  View grad_act;    // (C, P)
  float* inv_rms;   // (C)
  std::byte* adapters;
  int64_t bytes;

  Work part(const TokenRange& range) const {
    Work w = *this;
    for (View* view : {&w.gate_up, &w.act, &w.added, &w.grad_added, &w.grad_act})
      *view = view->slice_rows(0, range.count);
    return w;
  }
};

LayerInput::LayerInput(const ModelConfig& config, const ModelShape& shape, int64_t layer, const LinearTensors& from,
                       const LayerInputRecords& records)
    : shape_(shape),
      at_(records),
      adapters_(from.adapters ? *from.adapters : LayerLayout()),
      first_(layer * config.layer_input),
      all_(config.layer_input_cols),
      activation_(config.activation),
      gate_(from, LayerInputOperand::gate),
      out_(Linear(from, LayerInputOperand::out).times(M_SQRT1_2)),
      norm_(from.record, LayerInputOperand::out_norm, norm_shape(config)),
      factor_(find_operand(from.record, LayerInputOperand::factor)) {
  ensure(norm_.exists() && factor_.cols == 1, "a layer's input has a norm and a factor");
}

std::vector<int64_t> LayerInput::records() const { return list_of(at_); }

LayerInput::Work LayerInput::carve(std::byte* workspace, int64_t tokens) const {
  Carver carver(workspace);
  const auto view = [&](int64_t cols) { return carver.view(shape_.dtype, tokens, cols); };
  Work w{};
  w.gate_up = view(2 * width());
  w.act = view(width());
  w.added = view(in_width());
  w.grad_added = view(in_width());
  w.grad_act = view(width());
  w.inv_rms = carver.array<float>(tokens);
  w.adapters = carve_adapters(carver, adapters_, tokens);
  w.bytes = carver.bytes();
  return w;
}

int64_t LayerInput::workspace_bytes() const { return carve(nullptr, chunk_of(shape_, shape_.tokens)).bytes; }

// Everything before the norm. `inputs`: rows of p.
void LayerInput::make(const Binding& at, const View& x, const View& inputs, const Work& w) const {
  gate_.forward(at, x, {}, w.gate_up.slice_cols(0, width()));
  at.ops.move_heads(at.stream, {.from = inputs,
                                .to = w.gate_up,
                                .heads = 1,
                                .width = width(),
                                .from_begin = first_,
                                .to_begin = width(),
                                .to_step = width()});
  at.ops.gated_forward(at.stream, {.gate_up = w.gate_up, .out = w.act, .activation = activation_});
  out_.forward(at, w.act, {}, w.added);
}

void LayerInput::forward(Ops& ops, Stream& stream, const Forward& a) const {
  const Work work = carve(a.workspace, chunk_of(shape_, a.x.rows));
  const Binding whole = bind(ops, stream, a, at_, work.adapters);
  for (const TokenRange& range : ranges_of(shape_, a.x.rows)) {
    const Binding at = whole.at(range);
    const Work w = work.part(range);
    const View x = a.x.slice_rows(range.begin, range.count);
    make(at, x, a.shared.read.slice_rows(range.begin, range.count), w);
    norm_.forward(at, w.added, a.y.slice_rows(range.begin, range.count), w.inv_rms, x);
  }
  ops.scale_all(stream, {.x = a.y, .factor = factor_.weight(whole.weights), .out = a.y});
}

void LayerInput::backward(Ops& ops, Stream& stream, const Backward& a) const {
  const Work work = carve(a.workspace, chunk_of(shape_, a.x.rows));
  const Binding whole = bind(ops, stream, a, at_, work.adapters);
  ops.scale_all(stream, {.x = a.grad_y, .factor = factor_.weight(whole.weights), .out = a.grad_x});
  for (const TokenRange& range : ranges_of(shape_, a.x.rows)) {
    const Binding at = whole.at(range);
    const Work w = work.part(range);
    const View x = a.x.slice_rows(range.begin, range.count), grad = a.grad_x.slice_rows(range.begin, range.count);
    make(at, x, a.shared.read.slice_rows(range.begin, range.count), w);
    norm_.forward(at, w.added, w.grad_added, w.inv_rms);
    norm_.backward(at, {.x = w.added, .inv_rms = w.inv_rms, .grad_out = grad, .grad_x = w.grad_added});
    out_.backward_weight(at, w.grad_added, w.act);
    out_.backward_input(at, w.grad_added, w.grad_act);
    ops.gated_backward(
        stream, {.gate_up = w.gate_up, .grad_out = w.grad_act, .grad_gate_up = w.gate_up, .activation = activation_});
    const View grad_gate = w.gate_up.slice_cols(0, width());
    gate_.backward_weight(at, grad_gate, x);
    gate_.backward_input(at, grad_gate, grad, true);
    if (a.shared.grad_read.empty()) continue;
    ops.move_heads(stream, {.from = w.gate_up,
                            .to = a.shared.grad_read.slice_rows(range.begin, range.count),
                            .heads = 1,
                            .width = width(),
                            .from_begin = width(),
                            .to_begin = first_,
                            .to_step = width(),
                            .add = true,
                            .backward = true});
  }
}

int64_t LayerInput::decode_workspace_bytes(int64_t tokens) const { return carve(nullptr, tokens).bytes; }

void LayerInput::decode(Ops& ops, Stream& stream, const Decode& a) const {
  const Work w = carve(a.workspace, a.tokens.tokens);
  const Binding at = bind(ops, stream, a, at_, w.adapters);
  make(at, a.x, matrix(a.read.bytes, shape_.dtype, a.tokens.tokens, all_), w);
  norm_.forward(at, w.added, a.y, w.inv_rms, a.x);
  ops.scale_all(stream, {.x = a.y, .factor = factor_.weight(at.weights), .out = a.y});
}

}  // namespace megatrain
