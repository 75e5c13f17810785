#include "megatrain/model/head.h"

#include <algorithm>
#include <utility>

#include "megatrain/base/math.h"
#include "megatrain/model/layers/carve.h"

namespace megatrain {

namespace {

enum HeadOperand : int { kNorm, kTable };

// The head's table or, if tied, the embedding's table in its own slab.
Linear table_of(const ModelConfig& config, const ModelShape& shape, const LayerLayout& record) {
  if (!config.tied) return {record, kTable};
  return Linear(
      WeightOperand{.offset = 0, .state_offset = 0, .rows = config.vocab, .cols = config.hidden, .dtype = shape.dtype});
}

}  // namespace

std::vector<TensorSpec> head_tensors(const ModelConfig& c) {
  std::vector<TensorSpec> tensors = {
      {.name = c.norm_module + ".weight", .rows = 1, .cols = c.hidden, .role = TensorRole::norm, .operand = kNorm}};
  if (!c.tied) tensors.push_back({.name = "lm_head.weight", .rows = c.vocab, .cols = c.hidden, .operand = kTable});
  return tensors;
}

struct Head::Work {
  View normed;       // (C, H)
  float* inv_rms;    // (C)
  View logits;       // (C, V)
  View grad_normed;  // (C, H)
  View columns;      // (C, n) logits of trained rows, or their gradients
  int64_t bytes;
};

Head::Head(const ModelConfig& config, const ModelShape& shape, LayerLayout record, const LayerLayout* token_rows)
    : record_(std::move(record)),
      norm_(record_, kNorm, norm_shape(config)),
      table_(table_of(config, shape, record_).times(config.logits_scale)),
      token_rows_(find_token_rows(token_rows, config.tied ? kEmbeddingModule : kHeadModule)),
      trained_rows_(Linear(token_rows_.weight).times(config.logits_scale)),
      tied_(config.tied),
      cap_(static_cast<float>(config.logits_cap)),
      dtype_(shape.dtype),
      chunk_(shape.head_chunk > 0 ? std::min(shape.head_chunk, shape.tokens) : shape.tokens) {}

Head::Work Head::carve(std::byte* workspace) const {
  Carver carver(workspace);
  Work w{};
  w.normed = carver.view(dtype_, chunk_, norm_.width());
  w.inv_rms = carver.array<float>(chunk_);
  w.logits = carver.view(dtype_, chunk_, table_.out_width());
  w.grad_normed = carver.view(dtype_, chunk_, norm_.width());
  if (token_rows_.any()) w.columns = carver.view(dtype_, chunk_, token_rows_.count());
  w.bytes = carver.bytes();
  return w;
}

int64_t Head::workspace_bytes() const { return carve(nullptr).bytes; }

std::vector<int64_t> Head::records() const {
  std::vector<int64_t> records = {0};
  if (tied_) records.push_back(1);
  if (token_rows_.any()) records.push_back(2);
  return records;
}

void Head::forward(Ops& ops, Stream& stream, const Forward& a) const {
  run(ops, stream,
      {.weights = a.weights,
       .x = a.x,
       .accumulate = false,
       .micro_batch = a.micro_batch,
       .tables = a.tables,
       .workspace = a.workspace,
       .losses = a.losses},
      false);
}

void Head::backward(Ops& ops, Stream& stream, const Backward& a) const { run(ops, stream, a, true); }

void Head::run(Ops& ops, Stream& stream, const Backward& a, bool backward) const {
  const Work w = carve(a.workspace);
  const LossViews& losses = a.losses;
  const int64_t tokens = a.micro_batch.tokens;
  for (int64_t begin = 0; begin < tokens; begin += chunk_) {
    const TokenRange range{begin, std::min(chunk_, tokens - begin)};
    const auto bind = [&](size_t record) {
      return Binding{ops, stream, a.weights[record], backward ? a.weight_grads[record] : nullptr, a.accumulate}.at(
          range);
    };
    const Binding own = bind(0), table = tied_ ? bind(1) : own;
    const Binding rows = token_rows_.any() ? bind(tied_ ? 2 : 1) : own;
    const View x = a.x.slice_rows(begin, range.count);
    const View normed = w.normed.slice_rows(0, range.count), logits = w.logits.slice_rows(0, range.count);
    const View grad_normed = w.grad_normed.slice_rows(0, range.count);
    MoveColumns columns{.wide = logits, .columns = a.micro_batch.token_rows.head, .narrow = {}};
    if (token_rows_.any()) columns.narrow = w.columns.slice_rows(0, range.count);
    norm_.forward(own, x, normed, w.inv_rms);
    table_.forward(table, normed, {}, logits);
    if (token_rows_.any()) {
      trained_rows_.forward(rows, normed, {}, columns.narrow);
      ops.move_columns(stream, columns);
    }
    ops.cross_entropy(stream, {.logits = logits,
                               .labels = a.micro_batch.labels + begin,
                               .scale = losses.scale,
                               .loss = losses.loss + begin,
                               .correct = losses.correct + begin,
                               .backward = backward,
                               .token_scales = losses.token_scales ? losses.token_scales + begin : nullptr,
                               .cap = cap_});
    if (!backward) continue;
    if (token_rows_.any()) {  // the table's own rows have no part in the loss
      columns.take = true;
      ops.move_columns(stream, columns);
      trained_rows_.backward_weight(rows, columns.narrow, normed);
    }
    table_.backward_weight(table, logits, normed);
    if (!a.grad_x_is_used && !norm_.trained()) continue;
    table_.backward_input(table, logits, grad_normed);
    if (token_rows_.any()) trained_rows_.backward_input(rows, columns.narrow, grad_normed, true);
    norm_.backward(
        own,
        {.x = x, .inv_rms = w.inv_rms, .grad_out = grad_normed, .grad_x = a.grad_x.slice_rows(begin, range.count)});
  }
}

struct Head::DecodeWork {
  View rows;       // (rows, H)
  View normed;     // (rows, H)
  float* inv_rms;  // (rows)
  View columns;    // (rows, n) fp32 logits of trained rows
  int64_t bytes;
};

Head::DecodeWork Head::carve_decode(std::byte* workspace, int64_t rows) const {
  Carver carver(workspace);
  DecodeWork w{};
  w.rows = carver.view(dtype_, rows, norm_.width());
  w.normed = carver.view(dtype_, rows, norm_.width());
  w.inv_rms = carver.array<float>(rows);
  if (token_rows_.any()) w.columns = carver.view(DType::f32, rows, token_rows_.count());
  w.bytes = carver.bytes();
  return w;
}

int64_t Head::decode_workspace_bytes(int64_t rows) const { return carve_decode(nullptr, rows).bytes; }

void Head::decode_norm(Ops& ops, Stream& stream, const DecodeNorm& a) const {
  const DecodeWork w = carve_decode(a.workspace, a.rows);
  ops.embedding_forward(stream, {.table = a.x, .index = a.index, .out = w.rows});
  norm_.at_start().forward({ops, stream, a.norm}, w.rows, w.normed, w.inv_rms);
}

void Head::decode_logits(Ops& ops, Stream& stream, const Logits& a) const {
  const View logits = a.logits.slice_cols(a.begin, a.count);
  table_.rows_at_start(a.count).forward({ops, stream, a.table}, carve_decode(a.workspace, a.rows).normed, {}, logits);
  if (cap_ > 0) ops.cap_logits(stream, {.logits = logits, .cap = cap_});
}

void Head::decode_token_rows(Ops& ops, Stream& stream, const TokenLogits& a) const {
  const DecodeWork w = carve_decode(a.workspace, a.rows);
  trained_rows_.forward({ops, stream, a.weights}, w.normed, {}, w.columns);
  if (cap_ > 0) ops.cap_logits(stream, {.logits = w.columns, .cap = cap_});
  ops.move_columns(stream, {.wide = a.logits, .columns = a.ids, .narrow = w.columns});
}

int64_t default_head_chunk(const ModelConfig& config, DType dtype, int64_t tokens, int64_t bytes) {
  const Head some(config, {.dtype = dtype, .tokens = 128, .head_chunk = 128}, make_layout(head_tensors(config)));
  const int64_t one = some.workspace_bytes() / 128 + 1;
  const int64_t fits = std::max<int64_t>(std::max(bytes, kHeadBytes) / one / 128 * 128, 128);
  return std::min(tokens, round_up(ceil_div(tokens, ceil_div(tokens, fits)), 128));
}

}  // namespace megatrain
