#include "megatrain/model/block.h"

#include <algorithm>

#include "megatrain/model/carve.h"

namespace megatrain {

struct DenseBlock::Work {
  AttentionHalf::Work attention;
  Chunked post_normed;   // (H)
  Chunked post_inv_rms;  // (1) fp32
  Chunked gate_up;       // (2F)
  Chunked act;           // (F)
  Chunked down_out;      // (H) down's product, with a norm behind it only
  Chunked down_inv_rms;  // (1) fp32
  View grad_act;         // (C, F)
  int64_t workspace_bytes, kept_bytes;
};

BlockShape block_shape(const ModelConfig& config, const ModelShape& shape, int64_t layer) {
  return {.attention = attention_half_shape(config, shape, layer), .ff = config.ff, .activation = config.activation};
}

DenseBlock::DenseBlock(const BlockShape& shape, const LayerLayout& record)
    : s_(shape),
      attention_(shape.attention, record),
      post_norm_(find_operand(record, BlockOperand::post_norm)),
      down_norm_(find_operand(record, BlockOperand::down_norm)),
      gate_up_(find_linear(record, BlockOperand::gate_up, BlockOperand::gate_up_bias)),
      down_(find_linear(record, BlockOperand::down, BlockOperand::down_bias)) {}

int64_t DenseBlock::workspace_bytes() const { return carve(nullptr, Keep::nothing, nullptr).workspace_bytes; }
int64_t DenseBlock::kept_bytes(Keep keep) const { return carve(nullptr, keep, nullptr).kept_bytes; }

DenseBlock::Work DenseBlock::carve(std::byte* workspace, Keep keep, std::byte* kept) const {
  Carver work(workspace), keeping(kept);
  const DType dtype = s_.attention.dtype;
  const int64_t tokens = s_.attention.tokens, chunk = s_.attention.chunk, hidden = s_.attention.hidden;
  const auto chunked = [&](Keep level, DType type, int64_t cols) {
    const bool whole = keep >= level;
    return Chunked{(whole ? keeping : work).view(type, whole ? tokens : chunk, cols), whole};
  };
  Work w{};
  w.attention = attention_.carve(work, work, keeping, keep, false, down_norm_.offset >= 0);
  w.post_normed = chunked(Keep::everything, dtype, hidden);
  w.post_inv_rms = chunked(Keep::everything, DType::f32, 1);
  w.gate_up = chunked(Keep::products, dtype, 2 * s_.ff);
  w.act = chunked(Keep::everything, dtype, s_.ff);
  if (down_norm_.offset >= 0) {
    w.down_out = chunked(Keep::products, dtype, hidden);
    w.down_inv_rms = chunked(Keep::everything, DType::f32, 1);
  }
  w.grad_act = work.view(dtype, chunk, s_.ff);
  w.workspace_bytes = work.bytes();
  w.kept_bytes = keeping.bytes();
  return w;
}

void DenseBlock::forward(Ops& ops, Stream& stream, const Forward& a) const {
  std::byte* slab = a.weights[0];
  const Work w = carve(a.workspace, a.keep, a.kept);
  const auto there = [&](Keep level) { return a.again && a.keep >= level; };
  if (!there(Keep::outputs)) attention_.mix(ops, stream, slab, a.x, a.micro_batch, a.tables, w.attention, true);
  for (const TokenRange& range : s_.attention.ranges()) {
    if (!there(Keep::attention)) attention_.project_out(ops, stream, slab, a.x, w.attention, range);
    const View h = w.attention.h.at(range), normed = w.post_normed.at(range);
    const View product = w.gate_up.at(range), act = w.act.at(range);
    if (!there(Keep::products)) {
      attention_.norm().forward(ops, stream, post_norm_.weight(slab), h, normed, w.post_inv_rms.at(range).as<float>());
      project(ops, stream, slab, gate_up_, normed, {}, product);
    }
    const View y = a.y.slice_rows(range.begin, range.count);
    ops.gated_forward(stream, {.gate_up = product, .out = act, .activation = s_.activation});
    if (down_norm_.offset >= 0) {
      const View out = w.down_out.at(range);
      project(ops, stream, slab, down_, act, {}, out);
      attention_.norm().forward(ops, stream, down_norm_.weight(slab), out, y, w.down_inv_rms.at(range).as<float>(), h);
    } else {
      project(ops, stream, slab, down_, act, h, y);
    }
  }
}

void DenseBlock::backward(Ops& ops, Stream& stream, const Backward& a) const {
  const Work w = carve(a.workspace, a.keep, a.kept);
  const bool again = a.keep < Keep::attention;
  if (again)
    attention_.mix(ops, stream, a.weights[0], a.x, a.micro_batch, a.tables, w.attention, a.keep < Keep::outputs);
  for (const TokenRange& range : s_.attention.ranges()) {
    if (again) attention_.project_out(ops, stream, a.weights[0], a.x, w.attention, range);
    mlp_backward(ops, stream, a, w, range);
    attention_.project_out_backward(ops, stream, a, w.attention, range);
  }
  attention_.mix_backward(ops, stream, a, w.attention);
}

// The gradient of down's product from that of y. Makes the product again unless it was kept, and with it the
// activation.
View DenseBlock::down_norm_backward(Ops& ops, Stream& stream, const Backward& a, const Work& w,
                                    const TokenRange& range) const {
  std::byte* slab = a.weights[0];
  const View out = w.down_out.at(range), grad = w.attention.grad_out.slice_rows(0, range.count);
  float* inv_rms = w.down_inv_rms.at(range).as<float>();
  if (a.keep < Keep::products) {
    const View act = w.act.at(range);
    ops.gated_forward(stream, {.gate_up = w.gate_up.at(range), .out = act, .activation = s_.activation});
    project(ops, stream, slab, down_, act, {}, out);
  }
  if (a.keep < Keep::everything) attention_.norm().forward(ops, stream, down_norm_.weight(slab), out, grad, inv_rms);
  attention_.norm().backward(ops, stream,
                             {.x = out,
                              .weight = down_norm_.weight(slab),
                              .inv_rms = inv_rms,
                              .grad_out = a.grad_y.slice_rows(range.begin, range.count),
                              .residual = {},
                              .grad_x = grad,
                              .grad_weight = down_norm_.gradient(a.weight_grads[0]),
                              .accumulate = a.accumulate || range.begin > 0});
  return grad;
}

// From dL/dy in grad_y to dL/dh in grad_x.
void DenseBlock::mlp_backward(Ops& ops, Stream& stream, const Backward& a, const Work& w,
                              const TokenRange& range) const {
  std::byte* slab = a.weights[0];
  float* grads = a.weight_grads[0];
  const bool accumulate = a.accumulate || range.begin > 0;
  const View h = w.attention.h.at(range), grad_y = a.grad_y.slice_rows(range.begin, range.count);
  const View normed = w.post_normed.at(range), product = w.gate_up.at(range);
  const View act = w.act.at(range), grad_act = w.grad_act.slice_rows(0, range.count);
  const View grad_normed = w.attention.grad_normed.slice_rows(0, range.count);
  float* inv_rms = w.post_inv_rms.at(range).as<float>();
  if (a.keep < Keep::everything) attention_.norm().forward(ops, stream, post_norm_.weight(slab), h, normed, inv_rms);
  if (a.keep < Keep::products) project(ops, stream, slab, gate_up_, normed, {}, product);
  const View grad_down = down_norm_.offset >= 0 ? down_norm_backward(ops, stream, a, w, range) : grad_y;
  const bool has_act = a.keep >= Keep::everything || (down_norm_.offset >= 0 && a.keep < Keep::products);
  ops.linear_backward_input(stream, {.grad_out = grad_down, .weight = down_.weight.weight(slab), .grad_x = grad_act});
  ops.gated_backward(stream, {.gate_up = product,
                              .grad_out = grad_act,
                              .grad_gate_up = product,
                              .out = has_act ? View{} : act,
                              .activation = s_.activation});
  weight_gradients(ops, stream, grads, down_, grad_down, act, accumulate);
  weight_gradients(ops, stream, grads, gate_up_, product, normed, accumulate);
  ops.linear_backward_input(stream,
                            {.grad_out = product, .weight = gate_up_.weight.weight(slab), .grad_x = grad_normed});
  attention_.norm().backward(ops, stream,
                             {.x = h,
                              .weight = post_norm_.weight(slab),
                              .inv_rms = inv_rms,
                              .grad_out = grad_normed,
                              .residual = grad_y,
                              .grad_x = a.grad_x.slice_rows(range.begin, range.count),
                              .grad_weight = post_norm_.gradient(grads),
                              .accumulate = accumulate});
}

struct DenseBlock::DecodeWork {
  AttentionHalf::DecodeWork attention;
  View gate_up;  // (T, 2F)
  View act;      // (T, F)
  int64_t bytes;
};

DenseBlock::DecodeWork DenseBlock::carve_decode(std::byte* workspace, int64_t tokens) const {
  Carver carver(workspace);
  DecodeWork w{};
  w.attention = attention_.carve_decode(carver, tokens);
  w.gate_up = carver.view(s_.attention.dtype, tokens, 2 * s_.ff);
  w.act = carver.view(s_.attention.dtype, tokens, s_.ff);
  w.bytes = carver.bytes();
  return w;
}

int64_t DenseBlock::decode_workspace_bytes(int64_t tokens) const { return carve_decode(nullptr, tokens).bytes; }

void DenseBlock::decode(Ops& ops, Stream& stream, const Decode& a) const {
  std::byte* slab = a.weights[0];
  const DecodeWork w = carve_decode(a.workspace, a.tokens.tokens);
  const View normed = w.attention.normed;
  attention_.decode(ops, stream, a, w.attention);
  attention_.norm().forward(ops, stream, post_norm_.weight(slab), a.y, normed, w.attention.inv_rms);
  project(ops, stream, slab, gate_up_, normed, {}, w.gate_up);
  ops.gated_forward(stream, {.gate_up = w.gate_up, .out = w.act, .activation = s_.activation});
  if (down_norm_.offset >= 0) {
    project(ops, stream, slab, down_, w.act, {}, normed);
    attention_.norm().forward(ops, stream, down_norm_.weight(slab), normed, a.y, w.attention.inv_rms, a.y);
  } else {
    project(ops, stream, slab, down_, w.act, a.y, a.y);
  }
}

}  // namespace megatrain
