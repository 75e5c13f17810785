#include "megatrain/model/head.h"

#include <algorithm>
#include <utility>

#include "megatrain/base/math.h"
#include "megatrain/model/carve.h"

namespace megatrain {

namespace {

enum HeadOperand : int { kNorm, kTable };

}  // namespace

std::vector<TensorSpec> head_tensors(const ModelConfig& c) {
  std::vector<TensorSpec> tensors = {
      {.name = "model.norm.weight", .rows = 1, .cols = c.hidden, .role = TensorRole::norm, .operand = kNorm}};
  if (!c.tied) tensors.push_back({.name = "lm_head.weight", .rows = c.vocab, .cols = c.hidden, .operand = kTable});
  return tensors;
}

struct Head::Work {
  View normed;       // (C, H)
  float* inv_rms;    // (C)
  View logits;       // (C, V)
  View grad_normed;  // (C, H)
  int64_t bytes;
};

Head::Head(const ModelConfig& config, const ModelShape& shape, LayerLayout record)
    : record_(std::move(record)),
      norm_(find_operand(record_, kNorm)),
      table_(config.tied ? WeightOperand{.offset = 0,
                                         .state_offset = 0,
                                         .rows = config.vocab,
                                         .cols = config.hidden,
                                         .dtype = shape.dtype}
                         : find_operand(record_, kTable)),
      tied_(config.tied),
      eps_(static_cast<float>(config.norm_eps)),
      norm_offset_(static_cast<float>(config.norm_offset)),
      dtype_(shape.dtype),
      tokens_(shape.tokens),
      chunk_(shape.head_chunk > 0 ? std::min(shape.head_chunk, shape.tokens) : shape.tokens) {}

Head::Work Head::carve(std::byte* workspace) const {
  Carver carver(workspace);
  Work w{};
  w.normed = carver.view(dtype_, chunk_, norm_.cols);
  w.inv_rms = carver.array<float>(chunk_);
  w.logits = carver.view(dtype_, chunk_, table_.rows);
  w.grad_normed = carver.view(dtype_, chunk_, norm_.cols);
  w.bytes = carver.bytes();
  return w;
}

int64_t Head::workspace_bytes() const { return carve(nullptr).bytes; }

void Head::run(Ops& ops, Stream& stream, const Args& a) const {
  const Work w = carve(a.workspace);
  const View norm = norm_.weight(a.weights), table = table_.weight(tied_ ? a.table : a.weights);
  const View norm_grad = norm_.gradient(a.weight_grads);
  const View table_grad = tied_ && !a.table_grads ? View{} : table_.gradient(tied_ ? a.table_grads : a.weight_grads);
  const bool backward = !a.grad.empty();
  for (int64_t begin = 0; begin < tokens_; begin += chunk_) {
    const int64_t count = std::min(chunk_, tokens_ - begin);
    const View x = a.x.slice_rows(begin, count);
    const View normed = w.normed.slice_rows(0, count), logits = w.logits.slice_rows(0, count);
    const View grad_normed = w.grad_normed.slice_rows(0, count);
    ops.rmsnorm_forward(
        stream,
        {.x = x, .weight = norm, .weight_offset = norm_offset_, .eps = eps_, .out = normed, .inv_rms = w.inv_rms});
    ops.linear_forward(stream, {.x = normed, .weight = table, .bias = {}, .residual = {}, .out = logits});
    ops.cross_entropy(stream, {.logits = logits,
                               .labels = a.micro_batch.labels + begin,
                               .scale = a.scale,
                               .loss = a.loss + begin,
                               .correct = a.correct + begin,
                               .backward = backward});
    if (!backward) continue;
    const bool accumulate = a.accumulate || begin > 0;
    if (!table_grad.empty()) {
      ops.linear_backward_weight(
          stream,
          {.grad_out = logits, .x = normed, .grad_weight = table_grad, .grad_bias = {}, .accumulate = accumulate});
    }
    if (!a.grad_is_used && norm_grad.empty()) continue;
    ops.linear_backward_input(stream, {.grad_out = logits, .weight = table, .grad_x = grad_normed});
    ops.rmsnorm_backward(stream, {.x = x,
                                  .weight = norm,
                                  .weight_offset = norm_offset_,
                                  .inv_rms = w.inv_rms,
                                  .grad_out = grad_normed,
                                  .residual = {},
                                  .grad_x = a.grad.slice_rows(begin, count),
                                  .grad_weight = norm_grad,
                                  .accumulate = accumulate});
  }
}

struct Head::DecodeWork {
  View rows;       // (rows, H)
  View normed;     // (rows, H)
  float* inv_rms;  // (rows)
  int64_t bytes;
};

Head::DecodeWork Head::carve_decode(std::byte* workspace, int64_t rows) const {
  Carver carver(workspace);
  DecodeWork w{};
  w.rows = carver.view(dtype_, rows, norm_.cols);
  w.normed = carver.view(dtype_, rows, norm_.cols);
  w.inv_rms = carver.array<float>(rows);
  w.bytes = carver.bytes();
  return w;
}

int64_t Head::decode_workspace_bytes(int64_t rows) const { return carve_decode(nullptr, rows).bytes; }

void Head::decode_norm(Ops& ops, Stream& stream, const Norm& a) const {
  const DecodeWork w = carve_decode(a.workspace, a.rows);
  ops.embedding_forward(stream, {.table = a.x, .index = a.index, .out = w.rows});
  ops.rmsnorm_forward(stream, {.x = w.rows,
                               .weight = vector(a.norm, dtype_, norm_.cols),
                               .weight_offset = norm_offset_,
                               .eps = eps_,
                               .out = w.normed,
                               .inv_rms = w.inv_rms});
}

void Head::decode_logits(Ops& ops, Stream& stream, const Logits& a) const {
  ops.linear_forward(stream, {.x = carve_decode(a.workspace, a.rows).normed,
                              .weight = matrix(a.table, dtype_, a.count, norm_.cols),
                              .bias = {},
                              .residual = {},
                              .out = a.logits.slice_cols(a.begin, a.count)});
}

int64_t default_head_chunk(const ModelConfig& config, DType dtype, int64_t tokens, int64_t bytes) {
  const Head some(config, {.dtype = dtype, .tokens = 128, .head_chunk = 128}, make_layout(head_tensors(config)));
  const int64_t one = some.workspace_bytes() / 128 + 1;
  const int64_t fits = std::max<int64_t>(std::max(bytes, kHeadBytes) / one / 128 * 128, 128);
  return std::min(tokens, round_up(ceil_div(tokens, ceil_div(tokens, fits)), 128));
}

}  // namespace megatrain
