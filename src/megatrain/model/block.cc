#include "megatrain/model/block.h"

#include <algorithm>
#include <cmath>

#include "megatrain/model/carve.h"

namespace megatrain {

namespace {

// Some tokens of an activation that lies whole when it is kept and chunk by chunk when it is not.
struct Chunked {
  View view;  // (T, n) or (C, n)
  bool whole = false;
  View tokens(int64_t begin, int64_t count) const { return view.slice_rows(whole ? begin : 0, count); }
};

// A product with its bias; `residual` may be empty.
void project(Ops& ops, Stream& stream, std::byte* slab, const LinearOperands& linear, const View& x,
             const View& residual, const View& out) {
  ops.linear_forward(stream, {.x = x,
                              .weight = linear.weight.weight(slab),
                              .bias = linear.bias.weight(slab),
                              .residual = residual,
                              .out = out});
}

}  // namespace

struct DenseBlock::Work {
  View normed;           // (T, H) norm(x)
  float* inv_rms;        // (T)
  View qkv;              // (T, q + 2 kv) as attention reads it
  View product;          // (T, q + 2 kv) before q/k norm and rope, v for attention; without q/k norm it is qkv
  float* q_inv_rms;      // (T * heads) with q/k norm only
  float* k_inv_rms;      // (T * kv_heads)
  View attended;         // (T, q)
  float* lse;            // (heads * T)
  View o_out;            // (T, H) o's product, with a norm behind it only
  float* o_inv_rms;      // (T)
  View h;                // (T, H) after attention
  Chunked post_normed;   // (H)
  Chunked post_inv_rms;  // (1) fp32
  Chunked gate_up;       // (2F)
  Chunked act;           // (F)
  Chunked down_out;      // (H) down's product, with a norm behind it only
  Chunked down_inv_rms;  // (1) fp32
  View grad_out;         // (T, H) of a product with a norm behind it
  View grad_act;         // (C, F)
  View grad_normed;      // (T, H)
  View grad_attended;    // (T, q)
  View grad_qkv;         // (T, q + 2 kv)
  int64_t workspace_bytes, kept_bytes;
};

// What attention reads: the product with its bias, q/k norm where the block has one, and rope.
struct DenseBlock::QkvForward {
  View normed;            // (T, H) norm(x)
  View product;           // (T, q + 2 kv) out: before q/k norm. It may be `qkv`; without q/k norm it is
  View qkv;               // (T, q + 2 kv) out: q and k as attention reads them
  float* q_inv_rms;       // (T * heads) out, with q/k norm only
  float* k_inv_rms;       // (T * kv_heads)
  const int32_t* angles;  // (T) rows of the tables
  std::vector<AngleRun> runs;
  const float* tables;
};

BlockShape block_shape(const ModelConfig& config, const ModelShape& shape, int64_t layer) {
  const bool local = config.window_rope && config.window[static_cast<size_t>(layer)] > 0;
  return {
      .hidden = config.hidden,
      .ff = config.ff,
      .heads = config.heads,
      .kv_heads = config.kv_heads,
      .head_dim = config.head_dim,
      .window = config.window[static_cast<size_t>(layer)],
      .eps = static_cast<float>(config.norm_eps),
      .norm_offset = static_cast<float>(config.norm_offset),
      .scale = static_cast<float>(config.attention_scale > 0 ? config.attention_scale
                                                             : 1.0 / std::sqrt(static_cast<double>(config.head_dim))),
      .activation = config.activation,
      .dtype = shape.dtype,
      .tokens = shape.tokens,
      .mlp_chunk = shape.mlp_chunk > 0 ? std::min(shape.mlp_chunk, shape.tokens) : shape.tokens,
      .positions = shape.positions,
      .rope = local ? *config.window_rope : config.rope,
      .rope_at = local ? rope_floats(config.rope, config.head_dim, shape.positions) : 0};
}

DenseBlock::DenseBlock(const BlockShape& shape, const LayerLayout& record)
    : s_(shape),
      input_norm_(find_operand(record, BlockOperand::input_norm)),
      q_norm_(find_operand(record, BlockOperand::q_norm)),
      k_norm_(find_operand(record, BlockOperand::k_norm)),
      post_norm_(find_operand(record, BlockOperand::post_norm)),
      o_norm_(find_operand(record, BlockOperand::o_norm)),
      down_norm_(find_operand(record, BlockOperand::down_norm)),
      qkv_(find_linear(record, BlockOperand::qkv, BlockOperand::qkv_bias)),
      o_(find_linear(record, BlockOperand::o, BlockOperand::o_bias)),
      gate_up_(find_linear(record, BlockOperand::gate_up, BlockOperand::gate_up_bias)),
      down_(find_linear(record, BlockOperand::down, BlockOperand::down_bias)) {}

int64_t DenseBlock::workspace_bytes() const { return carve(nullptr, Keep::nothing, nullptr).workspace_bytes; }
int64_t DenseBlock::kept_bytes(Keep keep) const { return carve(nullptr, keep, nullptr).kept_bytes; }

DenseBlock::Work DenseBlock::carve(std::byte* workspace, Keep keep, std::byte* kept) const {
  Carver work(workspace), keeping(kept);
  const auto from = [&](Keep level) -> Carver& { return keep >= level ? keeping : work; };
  const auto chunked = [&](Keep level, DType dtype, int64_t cols) {
    const bool whole = keep >= level;
    return Chunked{from(level).view(dtype, whole ? s_.tokens : s_.mlp_chunk, cols), whole};
  };
  Work w{};
  w.normed = from(Keep::everything).view(s_.dtype, s_.tokens, s_.hidden);
  w.inv_rms = from(Keep::everything).array<float>(s_.tokens);
  w.qkv = from(Keep::attention).view(s_.dtype, s_.tokens, s_.qkv_dim());
  w.product = w.qkv;
  if (q_norm_.offset >= 0) {
    w.product = from(Keep::attention).view(s_.dtype, s_.tokens, s_.qkv_dim());
    w.q_inv_rms = from(Keep::attention).array<float>(s_.tokens * s_.heads);
    w.k_inv_rms = from(Keep::attention).array<float>(s_.tokens * s_.kv_heads);
  }
  w.attended = from(Keep::attention).view(s_.dtype, s_.tokens, s_.q_dim());
  w.lse = from(Keep::attention).array<float>(s_.tokens * s_.heads);
  if (o_norm_.offset >= 0) {
    w.o_out = from(Keep::attention).view(s_.dtype, s_.tokens, s_.hidden);
    w.o_inv_rms = from(Keep::attention).array<float>(s_.tokens);
  }
  w.h = from(Keep::attention).view(s_.dtype, s_.tokens, s_.hidden);
  w.post_normed = chunked(Keep::everything, s_.dtype, s_.hidden);
  w.post_inv_rms = chunked(Keep::everything, DType::f32, 1);
  w.gate_up = chunked(Keep::products, s_.dtype, 2 * s_.ff);
  w.act = chunked(Keep::everything, s_.dtype, s_.ff);
  if (down_norm_.offset >= 0) {
    w.down_out = chunked(Keep::products, s_.dtype, s_.hidden);
    w.down_inv_rms = chunked(Keep::everything, DType::f32, 1);
  }
  if (o_norm_.offset >= 0 || down_norm_.offset >= 0) w.grad_out = work.view(s_.dtype, s_.tokens, s_.hidden);
  w.grad_act = work.view(s_.dtype, s_.mlp_chunk, s_.ff);
  w.grad_normed = work.view(s_.dtype, s_.tokens, s_.hidden);
  w.grad_attended = work.view(s_.dtype, s_.tokens, s_.q_dim());
  w.grad_qkv = work.view(s_.dtype, s_.tokens, s_.qkv_dim());
  w.workspace_bytes = work.bytes();
  w.kept_bytes = keeping.bytes();
  return w;
}

AttentionShape DenseBlock::attention_shape(int64_t tokens) const {
  return {.tokens = tokens,
          .heads = s_.heads,
          .kv_heads = s_.kv_heads,
          .head_dim = s_.head_dim,
          .window = s_.window,
          .scale = s_.scale};
}

// The columns of (T, q + 2 kv).
DenseBlock::Qkv DenseBlock::split_qkv(const View& qkv) const {
  return {.q = qkv.slice_cols(0, s_.q_dim()),
          .k = qkv.slice_cols(s_.q_dim(), s_.kv_dim()),
          .v = qkv.slice_cols(s_.q_dim() + s_.kv_dim(), s_.kv_dim())};
}

void DenseBlock::norm(Ops& ops, Stream& stream, const View& weight, const View& x, const View& out, float* inv_rms,
                      const View& residual) const {
  ops.rmsnorm_forward(stream, {.x = x,
                               .weight = weight,
                               .weight_offset = s_.norm_offset,
                               .eps = s_.eps,
                               .groups = x.cols / weight.cols,
                               .residual = residual,
                               .out = out,
                               .inv_rms = inv_rms});
}

void DenseBlock::norm_backward(Ops& ops, Stream& stream, RmsNormBackward args) const {
  args.weight_offset = s_.norm_offset;
  args.groups = args.x.cols / args.weight.cols;
  ops.rmsnorm_backward(stream, args);
}

std::vector<AngleRun> DenseBlock::runs_of(const MicroBatchView& micro_batch) const {
  return angle_runs(micro_batch.documents, micro_batch.tokens, s_.rope.long_above());
}

void DenseBlock::rope(Ops& ops, Stream& stream, const View& qkv, const int32_t* angles,
                      const std::vector<AngleRun>& runs, const float* tables, bool backward) const {
  const int64_t turning = s_.rope.turning(s_.head_dim), half = turning / 2;
  for (const AngleRun& run : runs) {
    const float* cos = tables + s_.rope_at + (run.in_long ? s_.positions * half : 0);
    ops.rope(stream, {.x = qkv.slice_rows(run.begin, run.count).slice_cols(0, s_.q_dim() + s_.kv_dim()),
                      .heads = s_.heads + s_.kv_heads,
                      .head_dim = s_.head_dim,
                      .rotary_dim = turning,
                      .positions = angles + run.begin,
                      .cos = cos,
                      .sin = cos + rope_rows(s_.rope, s_.positions) * half,
                      .backward = backward});
  }
}

// What attention reads: q and k of `qkv`, v of `product`.
DenseBlock::Qkv DenseBlock::qkv_forward(Ops& ops, Stream& stream, std::byte* slab, const QkvForward& a) const {
  project(ops, stream, slab, qkv_, a.normed, {}, a.product);
  const Qkv raw = split_qkv(a.product), out = split_qkv(a.qkv);
  if (q_norm_.offset >= 0) {
    norm(ops, stream, q_norm_.weight(slab), raw.q, out.q, a.q_inv_rms);
    norm(ops, stream, k_norm_.weight(slab), raw.k, out.k, a.k_inv_rms);
  }
  rope(ops, stream, a.qkv, a.angles, a.runs, a.tables, false);
  return {.q = out.q, .k = out.k, .v = raw.v};
}

// From x to work.h: the attention half.
void DenseBlock::attend(Ops& ops, Stream& stream, std::byte* slab, const View& x, const MicroBatchView& micro_batch,
                        const float* tables, const Work& w) const {
  norm(ops, stream, input_norm_.weight(slab), x, w.normed, w.inv_rms);
  const Qkv read = qkv_forward(ops, stream, slab,
                               {.normed = w.normed,
                                .product = w.product,
                                .qkv = w.qkv,
                                .q_inv_rms = w.q_inv_rms,
                                .k_inv_rms = w.k_inv_rms,
                                .angles = micro_batch.positions,
                                .runs = runs_of(micro_batch),
                                .tables = tables});
  ops.attention_forward(stream, {.shape = attention_shape(s_.tokens),
                                 .documents = micro_batch.documents,
                                 .q = read.q,
                                 .k = read.k,
                                 .v = read.v,
                                 .out = w.attended,
                                 .lse = w.lse});
  if (o_norm_.offset >= 0) {
    project(ops, stream, slab, o_, w.attended, {}, w.o_out);
    norm(ops, stream, o_norm_.weight(slab), w.o_out, w.h, w.o_inv_rms, x);
  } else {
    project(ops, stream, slab, o_, w.attended, x, w.h);
  }
}

void DenseBlock::forward(Ops& ops, Stream& stream, const Forward& a) const {
  std::byte* slab = a.weights[0];
  const Work w = carve(a.workspace, a.keep, a.kept);
  attend(ops, stream, slab, a.x, a.micro_batch, a.tables, w);
  for (int64_t begin = 0; begin < s_.tokens; begin += s_.mlp_chunk) {
    const int64_t count = std::min(s_.mlp_chunk, s_.tokens - begin);
    const View h = w.h.slice_rows(begin, count), normed = w.post_normed.tokens(begin, count);
    const View product = w.gate_up.tokens(begin, count), act = w.act.tokens(begin, count);
    norm(ops, stream, post_norm_.weight(slab), h, normed, w.post_inv_rms.tokens(begin, count).as<float>());
    project(ops, stream, slab, gate_up_, normed, {}, product);
    const View y = a.y.slice_rows(begin, count);
    ops.gated_forward(stream, {.gate_up = product, .out = act, .activation = s_.activation});
    if (down_norm_.offset >= 0) {
      const View out = w.down_out.tokens(begin, count);
      project(ops, stream, slab, down_, act, {}, out);
      norm(ops, stream, down_norm_.weight(slab), out, y, w.down_inv_rms.tokens(begin, count).as<float>(), h);
    } else {
      project(ops, stream, slab, down_, act, h, y);
    }
  }
}

void DenseBlock::backward(Ops& ops, Stream& stream, const Backward& a) const {
  std::byte* slab = a.weights[0];
  const Work w = carve(a.workspace, a.keep, a.kept);
  if (a.keep < Keep::attention) {
    attend(ops, stream, slab, a.x, a.micro_batch, a.tables, w);
  } else if (a.keep < Keep::everything) {
    norm(ops, stream, input_norm_.weight(slab), a.x, w.normed, w.inv_rms);
  }
  mlp_backward(ops, stream, a, w);
  attention_backward(ops, stream, a, w);
}

// The gradient of down's product from that of y, of tokens [begin, begin + count). Makes the product again unless it
// was kept, and with it the activation.
View DenseBlock::down_norm_backward(Ops& ops, Stream& stream, const Backward& a, const Work& w, int64_t begin,
                                    int64_t count) const {
  std::byte* slab = a.weights[0];
  const View out = w.down_out.tokens(begin, count), grad = w.grad_out.slice_rows(0, count);
  float* inv_rms = w.down_inv_rms.tokens(begin, count).as<float>();
  if (a.keep < Keep::products) {
    const View act = w.act.tokens(begin, count);
    ops.gated_forward(stream, {.gate_up = w.gate_up.tokens(begin, count), .out = act, .activation = s_.activation});
    project(ops, stream, slab, down_, act, {}, out);
  }
  if (a.keep < Keep::everything) norm(ops, stream, down_norm_.weight(slab), out, grad, inv_rms);
  norm_backward(ops, stream,
                {.x = out,
                 .weight = down_norm_.weight(slab),
                 .inv_rms = inv_rms,
                 .grad_out = a.grad_y.slice_rows(begin, count),
                 .residual = {},
                 .grad_x = grad,
                 .grad_weight = down_norm_.gradient(a.weight_grads[0]),
                 .accumulate = a.accumulate || begin > 0});
  return grad;
}

// From dL/dy in grad_y to dL/dh in grad_x, chunk by chunk.
void DenseBlock::mlp_backward(Ops& ops, Stream& stream, const Backward& a, const Work& w) const {
  std::byte* slab = a.weights[0];
  float* grads = a.weight_grads[0];
  for (int64_t begin = 0; begin < s_.tokens; begin += s_.mlp_chunk) {
    const int64_t count = std::min(s_.mlp_chunk, s_.tokens - begin);
    const bool accumulate = a.accumulate || begin > 0;
    const View h = w.h.slice_rows(begin, count), grad_y = a.grad_y.slice_rows(begin, count);
    const View normed = w.post_normed.tokens(begin, count), product = w.gate_up.tokens(begin, count);
    const View act = w.act.tokens(begin, count), grad_act = w.grad_act.slice_rows(0, count);
    const View grad_normed = w.grad_normed.slice_rows(0, count);
    float* inv_rms = w.post_inv_rms.tokens(begin, count).as<float>();
    if (a.keep < Keep::everything) norm(ops, stream, post_norm_.weight(slab), h, normed, inv_rms);
    if (a.keep < Keep::products) project(ops, stream, slab, gate_up_, normed, {}, product);
    const View grad_down = down_norm_.offset >= 0 ? down_norm_backward(ops, stream, a, w, begin, count) : grad_y;
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
    norm_backward(ops, stream,
                  {.x = h,
                   .weight = post_norm_.weight(slab),
                   .inv_rms = inv_rms,
                   .grad_out = grad_normed,
                   .residual = grad_y,
                   .grad_x = a.grad_x.slice_rows(begin, count),
                   .grad_weight = post_norm_.gradient(grads),
                   .accumulate = accumulate});
  }
}

// grad_x goes from dL/dh to dL/dx.
void DenseBlock::attention_backward(Ops& ops, Stream& stream, const Backward& a, const Work& w) const {
  std::byte* slab = a.weights[0];
  float* grads = a.weight_grads[0];
  View grad_o = a.grad_x;
  if (o_norm_.offset >= 0) {
    grad_o = w.grad_out;
    norm_backward(ops, stream,
                  {.x = w.o_out,
                   .weight = o_norm_.weight(slab),
                   .inv_rms = w.o_inv_rms,
                   .grad_out = a.grad_x,
                   .residual = {},
                   .grad_x = grad_o,
                   .grad_weight = o_norm_.gradient(grads),
                   .accumulate = a.accumulate});
  }
  weight_gradients(ops, stream, grads, o_, grad_o, w.attended, a.accumulate);
  ops.linear_backward_input(stream, {.grad_out = grad_o, .weight = o_.weight.weight(slab), .grad_x = w.grad_attended});
  const Qkv read = split_qkv(w.qkv), raw = split_qkv(w.product), grad = split_qkv(w.grad_qkv);
  ops.attention_backward(stream, {.shape = attention_shape(s_.tokens),
                                  .documents = a.micro_batch.documents,
                                  .q = read.q,
                                  .k = read.k,
                                  .v = raw.v,
                                  .out = w.attended,
                                  .lse = w.lse,
                                  .grad_out = w.grad_attended,
                                  .grad_q = grad.q,
                                  .grad_k = grad.k,
                                  .grad_v = grad.v});
  rope(ops, stream, w.grad_qkv, a.micro_batch.positions, runs_of(a.micro_batch), a.tables, true);
  if (q_norm_.offset >= 0) {
    norm_backward(ops, stream,
                  {.x = raw.q,
                   .weight = q_norm_.weight(slab),
                   .inv_rms = w.q_inv_rms,
                   .grad_out = grad.q,
                   .residual = {},
                   .grad_x = grad.q,
                   .grad_weight = q_norm_.gradient(grads),
                   .accumulate = a.accumulate});
    norm_backward(ops, stream,
                  {.x = raw.k,
                   .weight = k_norm_.weight(slab),
                   .inv_rms = w.k_inv_rms,
                   .grad_out = grad.k,
                   .residual = {},
                   .grad_x = grad.k,
                   .grad_weight = k_norm_.gradient(grads),
                   .accumulate = a.accumulate});
  }
  weight_gradients(ops, stream, grads, qkv_, w.grad_qkv, w.normed, a.accumulate);
  ops.linear_backward_input(stream,
                            {.grad_out = w.grad_qkv, .weight = qkv_.weight.weight(slab), .grad_x = w.grad_normed});
  norm_backward(ops, stream,
                {.x = a.x,
                 .weight = input_norm_.weight(slab),
                 .inv_rms = w.inv_rms,
                 .grad_out = w.grad_normed,
                 .residual = a.grad_x,
                 .grad_x = a.grad_x,
                 .grad_weight = input_norm_.gradient(grads),
                 .accumulate = a.accumulate});
}

struct DenseBlock::DecodeWork {
  View normed;     // (T, H)
  float* inv_rms;  // (T * heads) nothing reads it
  View qkv;        // (T, q + 2 kv)
  View attended;   // (T, q)
  View gate_up;    // (T, 2F)
  View act;        // (T, F)
  int64_t bytes;
};

DenseBlock::DecodeWork DenseBlock::carve_decode(std::byte* workspace, int64_t tokens) const {
  Carver carver(workspace);
  DecodeWork w{};
  w.normed = carver.view(s_.dtype, tokens, s_.hidden);
  w.inv_rms = carver.array<float>(tokens * s_.heads);
  w.qkv = carver.view(s_.dtype, tokens, s_.qkv_dim());
  w.attended = carver.view(s_.dtype, tokens, s_.q_dim());
  w.gate_up = carver.view(s_.dtype, tokens, 2 * s_.ff);
  w.act = carver.view(s_.dtype, tokens, s_.ff);
  w.bytes = carver.bytes();
  return w;
}

int64_t DenseBlock::decode_workspace_bytes(int64_t tokens) const { return carve_decode(nullptr, tokens).bytes; }

void DenseBlock::decode(Ops& ops, Stream& stream, const Decode& a) const {
  std::byte* slab = a.weights[0];
  const DecodeWork w = carve_decode(a.workspace, a.tokens.tokens);
  norm(ops, stream, input_norm_.weight(slab), a.x, w.normed, w.inv_rms);
  const Qkv read = qkv_forward(ops, stream, slab,
                               {.normed = w.normed,
                                .product = w.qkv,
                                .qkv = w.qkv,
                                .q_inv_rms = w.inv_rms,
                                .k_inv_rms = w.inv_rms,
                                .angles = a.tokens.angles,
                                .runs = {{0, a.tokens.tokens, false}},
                                .tables = a.tables});
  ops.attention_cached(stream, {.shape = attention_shape(a.tokens.tokens),
                                .context = a.cache.context,
                                .sequences = a.tokens.sequences,
                                .positions = a.tokens.positions,
                                .q = read.q,
                                .k = read.k,
                                .v = read.v,
                                .k_cache = a.cache.k,
                                .v_cache = a.cache.v,
                                .out = w.attended});
  if (o_norm_.offset >= 0) {
    project(ops, stream, slab, o_, w.attended, {}, w.normed);
    norm(ops, stream, o_norm_.weight(slab), w.normed, a.y, w.inv_rms, a.x);
  } else {
    project(ops, stream, slab, o_, w.attended, a.x, a.y);
  }
  norm(ops, stream, post_norm_.weight(slab), a.y, w.normed, w.inv_rms);
  project(ops, stream, slab, gate_up_, w.normed, {}, w.gate_up);
  ops.gated_forward(stream, {.gate_up = w.gate_up, .out = w.act, .activation = s_.activation});
  if (down_norm_.offset >= 0) {
    project(ops, stream, slab, down_, w.act, {}, w.normed);
    norm(ops, stream, down_norm_.weight(slab), w.normed, a.y, w.inv_rms, a.y);
  } else {
    project(ops, stream, slab, down_, w.act, a.y, a.y);
  }
}

}  // namespace megatrain
