#include "megatrain/train/step_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "megatrain/base/error.h"

namespace megatrain {

namespace {

static_assert(kNormPartialElements == kNormBlock, "the plan sizes the norm's partials as the op fills them");

// Offsets of the tables of a micro-batch with T >= 2 tokens, in words. Id, row, labels, positions, segment order,
// counted and segment row have T words each; segment begin and documents have T + 1 each. The sum is 9 T + 2, at most
// 10 T. Since 10 T words are reserved, a step's inputs have the same size however it is divided into micro-batches.
struct MicroBatchTables {
  explicit MicroBatchTables(int64_t tokens)
      : row(tokens),
        labels(2 * tokens),
        positions(3 * tokens),
        segment_order(4 * tokens),
        counted(5 * tokens),
        segment_begin(6 * tokens),
        documents(segment_begin + tokens + 1),
        segment_row(documents + tokens + 1) {}
  int64_t id = 0, row, labels, positions, segment_order, counted, segment_begin, documents, segment_row;
};

// The tables of TokenRowTables, after those above and only if the embedding has trained rows of single tokens: slot,
// order and row have T words each, begin has T + 1. The sum is at most 5 T.
struct TokenTables {
  explicit TokenTables(int64_t tokens) : order(tokens), row(2 * tokens), begin(3 * tokens) {}
  int64_t slot = 0, order, row, begin;
};

int64_t shared_words(int64_t tokens) { return 10 * tokens; }
int64_t micro_batch_words(const Model& model) {
  return shared_words(model.shape.tokens) + (model.embedding.token_rows().any() ? 5 * model.shape.tokens : 0);
}

// Tables of the whole step, after its micro-batches: 0, 1, 2, ... (rows + 1), then the touched ids (rows).
int64_t row_words(int64_t rows) { return 2 * rows + 1; }

// After those: 0, 1, 2, ... (n + 1) for the n trained rows of the embedding, then the ids of the head's.
int64_t token_id_words(const Model& model) {
  return model.embedding.token_rows().count() + 1 + model.head.token_rows().count();
}

// Writes 1 for every token of a document that has trained tokens, else 0. Padding is a document without any. Returns
// the sum.
int64_t mark_counted(const MicroBatch& micro, int32_t* counted) {
  int64_t sum = 0;
  for (size_t d = 0; d + 1 < micro.document_begin.size(); ++d) {
    const int64_t begin = micro.document_begin[d], end = micro.document_begin[d + 1];
    const bool counts = std::any_of(micro.labels.begin() + begin, micro.labels.begin() + end,
                                    [](int32_t label) { return label != kIgnoreLabel; });
    std::fill(counted + begin, counted + end, counts ? 1 : 0);
    sum += counts ? end - begin : 0;
  }
  return sum;
}

// The parts of a record's gradient, with adjacent parts of the same size merged into runs. Frozen parts are left out,
// since their sums stay zero.
std::vector<PartRun> runs_of_parts(const LayerLayout& layout) {
  std::vector<PartRun> runs;
  const std::vector<ElementRange> parts = layout.norm_parts();
  for (size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].count == 0) continue;
    const bool more = !runs.empty() && runs.back().first + runs.back().parts == static_cast<int64_t>(part) &&
                      runs.back().elements == runs.back().parts * parts[part].count;
    if (!more) runs.push_back({.first = static_cast<int64_t>(part), .parts = 0, .begin = parts[part].begin});
    ++runs.back().parts;
    runs.back().elements += parts[part].count;
  }
  return runs;
}

// How many sums of squares an action reads.
int64_t squares_in(const Operands& operands) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < operands.count(Operand::squares); ++i) bytes += operands.bytes(Operand::squares, i);
  return bytes / static_cast<int64_t>(sizeof(double));
}

// The records that a part of a phase needs whole, in their order.
std::vector<int64_t> whole_records(const Workload& w, const Action& a) {
  std::vector<int64_t> records = w.phase(a.phase).records_of(a.part);
  std::erase(records, w.phase(a.phase).looks_up);
  return records;
}

// The slabs of these records.
std::vector<std::byte*> weights_of(const Workload& w, const Action& a, const Operands& operands) {
  const int64_t records = std::ssize(whole_records(w, a));
  std::vector<std::byte*> slabs;
  for (int64_t i = 0; i < records; ++i) slabs.push_back(operands.address(Operand::weights, i));
  return slabs;
}

// The memory in which forward counts its router's choices. It is zeroed before the first micro-batch of the step.
std::byte* router_counts_of(const Action& a, const Operands& operands, Stream& stream) {
  std::byte* counts = operands.optional(Operand::router_counts);
  if (counts && a.micro_batch == 0) stream.zero(counts, static_cast<size_t>(operands.bytes(Operand::router_counts)));
  return counts;
}

}  // namespace

int64_t input_bytes(const Model& model, int64_t micro_batches, int64_t touched_rows) {
  return (micro_batches * micro_batch_words(model) + row_words(touched_rows) + token_id_words(model)) * 4;
}

StepProgram::StepProgram(const Model& model, Ops& ops, const Workload& workload, const Plan& plan, Updater& updater,
                         int32_t* staged)
    : model_(model),
      ops_(ops),
      workload_(workload),
      layouts_(model.layouts()),
      updater_(updater),
      phases_(model.phases()),
      first_trained_(workload.first_trained_phase()),
      staged_(staged),
      micro_batches_(static_cast<size_t>(workload.micro_batches)),
      row_of_id_(static_cast<size_t>(model.config.vocab), -1) {
  ensure(layouts_.size() == workload.records.size() && phases_.size() == workload.phases.size(),
         "the workload is this model's");
  for (const RecordPlan& record : plan.records) rows_come_.push_back(record.state != Tier::hbm);
  for (const LayerLayout& layout : layouts_) {
    part_runs_.push_back(runs_of_parts(layout));
    unpacking_.emplace_back(layout);
  }
  const TokenRows& rows = model.embedding.token_rows();
  if (rows.any()) slot_of_id_.assign(row_of_id_.size(), -1);
  for (int64_t i = 0; i < rows.count(); ++i)
    slot_of_id_[static_cast<size_t>(rows.ids[static_cast<size_t>(i)])] = static_cast<int32_t>(i);
}

StepBytes StepProgram::prepare(const Batch& batch, int64_t sequence, const OptimStep& optim) {
  Step& step = step_of(sequence);
  step.optim = optim_ = optim;
  step.touched.clear();
  for (const MicroBatch& micro : batch.micro_batches) {
    for (const int32_t id : micro.tokens) {
      if (row_of_id_[static_cast<size_t>(id)] >= 0) continue;
      row_of_id_[static_cast<size_t>(id)] = 0;
      step.touched.push_back(id);
    }
  }
  std::sort(step.touched.begin(), step.touched.end());
  for (size_t row = 0; row < step.touched.size(); ++row)
    row_of_id_[static_cast<size_t>(step.touched[row])] = static_cast<int32_t>(row);
  counted_ = 0;
  for (size_t m = 0; m < batch.micro_batches.size(); ++m)
    stage_micro_batch(static_cast<int64_t>(m), batch.micro_batches[m], step.touched);
  for (const int32_t id : step.touched) row_of_id_[static_cast<size_t>(id)] = -1;
  int32_t* counting = staged_ + row_tables_at();
  std::iota(counting, counting + step.touched.size() + 1, 0);
  std::copy(step.touched.begin(), step.touched.end(), counting + step.touched.size() + 1);
  stage_token_ids();
  rows_ = static_cast<int64_t>(step.touched.size());
  loss_scale_ = static_cast<float>(1.0 / static_cast<double>(batch.trained));
  return {.inputs = workload_.input_bytes, .rows = rows_};
}

int64_t StepProgram::micro_batch_at(int64_t m) const { return m * micro_batch_words(model_); }
int64_t StepProgram::row_tables_at() const { return micro_batch_at(workload_.micro_batches); }
int64_t StepProgram::token_ids_at() const { return row_tables_at() + row_words(workload_.touched_rows(0)); }

void StepProgram::stage_token_ids() {
  int32_t* counting = staged_ + token_ids_at();
  const int64_t count = model_.embedding.token_rows().count() + 1;
  std::iota(counting, counting + count, 0);
  std::ranges::copy(model_.head.token_rows().ids, counting + count);
}

// Returns the number of segments. Tokens are in ascending order within a row; the padding id is in no segment.
int64_t StepProgram::stage_token_rows(const MicroBatch& micro, int32_t* tables) {
  const int64_t tokens = std::ssize(micro.tokens), rows = model_.embedding.token_rows().count();
  const TokenTables at(workload_.micro_tokens);
  segment_count_.assign(static_cast<size_t>(rows) + 1, 0);
  const auto trained = [&](int64_t t) {
    return tables[at.slot + t] >= 0 && micro.tokens[static_cast<size_t>(t)] != model_.config.pad_id;
  };
  for (int64_t t = 0; t < tokens; ++t) {
    tables[at.slot + t] = slot_of_id_[static_cast<size_t>(micro.tokens[static_cast<size_t>(t)])];
    if (trained(t)) ++segment_count_[static_cast<size_t>(tables[at.slot + t]) + 1];
  }
  int64_t segments = 0;
  for (int64_t r = 0; r < rows; ++r) {
    int32_t& end = segment_count_[static_cast<size_t>(r) + 1];
    const int32_t begin = segment_count_[static_cast<size_t>(r)];
    if (end > 0) {
      tables[at.row + segments] = static_cast<int32_t>(r);
      tables[at.begin + segments++] = begin;
    }
    end += begin;
  }
  tables[at.begin + segments] = segment_count_.back();
  for (int64_t t = 0; t < tokens; ++t) {
    if (trained(t))
      tables[at.order + segment_count_[static_cast<size_t>(tables[at.slot + t])]++] = static_cast<int32_t>(t);
  }
  return segments;
}

void StepProgram::stage_micro_batch(int64_t m, const MicroBatch& micro, const std::vector<int32_t>& touched) {
  const int64_t tokens = std::ssize(micro.tokens);
  ensure(0 < tokens && tokens <= workload_.micro_tokens, "a micro-batch has at most the tokens of the plan");
  const MicroBatchTables at(workload_.micro_tokens);
  int32_t* host = staged_ + micro_batch_at(m);

  // counting sort of positions by row: stable, so ascending within a row; the padding id is in no segment
  const auto trained = [&](int64_t t) { return micro.tokens[static_cast<size_t>(t)] != model_.config.pad_id; };
  segment_count_.assign(touched.size() + 1, 0);
  const auto row_of = [&](int64_t t) { return row_of_id_[static_cast<size_t>(micro.tokens[static_cast<size_t>(t)])]; };
  for (int64_t t = 0; t < tokens; ++t) {
    host[at.id + t] = micro.tokens[static_cast<size_t>(t)];
    host[at.row + t] = row_of(t);
    if (trained(t)) ++segment_count_[static_cast<size_t>(row_of(t)) + 1];
  }
  int64_t segments = 0;
  for (size_t r = 0; r < touched.size(); ++r) {
    if (segment_count_[r + 1] > 0) {
      host[at.segment_row + segments] = static_cast<int32_t>(r);
      host[at.segment_begin + segments] = segment_count_[r];
      ++segments;
    }
    segment_count_[r + 1] += segment_count_[r];
  }
  host[at.segment_begin + segments] = segment_count_[touched.size()];
  for (int64_t t = 0; t < tokens; ++t) {
    if (trained(t)) host[at.segment_order + segment_count_[static_cast<size_t>(row_of(t))]++] = static_cast<int32_t>(t);
  }

  std::copy(micro.labels.begin(), micro.labels.end(), host + at.labels);
  std::copy(micro.positions.begin(), micro.positions.end(), host + at.positions);
  std::copy(micro.document_begin.begin(), micro.document_begin.end(), host + at.documents);
  counted_ += mark_counted(micro, host + at.counted);
  micro_batches_[static_cast<size_t>(m)] = {
      .tokens = tokens,
      .documents = std::ssize(micro.document_begin) - 1,
      .longest = micro.longest,
      .uniform = micro.uniform,
      .segments = segments,
      .token_segments = slot_of_id_.empty() ? 0 : stage_token_rows(micro, host + shared_words(workload_.micro_tokens))};
}

std::optional<StepRandom> StepProgram::step_random(int64_t micro_batch) const {
  if (optim_.adamw.t == 0) return {};
  return StepRandom{.seed = optim_.adamw.seed, .step = optim_.adamw.t, .micro_batch = micro_batch};
}

TokenRowTables StepProgram::token_rows(const Action& a, const Operands& operands) const {
  const int32_t* inputs = operands.at<int32_t>(Operand::inputs);
  TokenRowTables tables{.head = inputs + token_ids_at() + model_.embedding.token_rows().count() + 1};
  if (slot_of_id_.empty()) return tables;
  const int32_t* device = inputs + micro_batch_at(a.micro_batch) + shared_words(workload_.micro_tokens);
  const TokenTables at(workload_.micro_tokens);
  tables.slot = device + at.slot;
  tables.order = device + at.order;
  tables.begin = device + at.begin;
  tables.row = device + at.row;
  tables.segments = micro_batches_[static_cast<size_t>(a.micro_batch)].token_segments;
  return tables;
}

MicroBatchView StepProgram::micro_batch(const Action& a, const Operands& operands) const {
  const int64_t base = micro_batch_at(a.micro_batch);
  const MicroBatchTables at(workload_.micro_tokens);
  const Staged& staged = micro_batches_[static_cast<size_t>(a.micro_batch)];
  const int64_t looked_up = workload_.phase(a.phase).looks_up;
  const int32_t *device = operands.at<int32_t>(Operand::inputs) + base, *host = staged_ + base;
  return {.tokens = staged.tokens,
          .row = device + (looked_up >= 0 && !rows_come_[static_cast<size_t>(looked_up)] ? at.id : at.row),
          .labels = device + at.labels,
          .positions = device + at.positions,
          .counted = device + at.counted,
          .documents = {.begin = device + at.documents,
                        .host_begin = host + at.documents,
                        .count = staged.documents,
                        .longest = staged.longest,
                        .uniform = staged.uniform},
          .segment_order = device + at.segment_order,
          .segment_begin = device + at.segment_begin,
          .segment_row = device + at.segment_row,
          .segments = staged.segments,
          .token_rows = token_rows(a, operands),
          .random = step_random(a.micro_batch)};
}

View StepProgram::activation(const Action& a, const Operands& operands, Operand operand, int64_t phase) const {
  if (!operands.has(operand)) return {};  // used by another part of the phase
  return matrix(operands.address(operand), workload_.activation_dtype, tokens_of(a), workload_.phase(phase).width);
}

void StepProgram::compute(const Action& a, const Operands& operands, Stream& stream) {
  switch (a.kind) {
    case ActionKind::forward: return forward(a, operands, stream);
    case ActionKind::head:  // an evaluation has no gradients
      return operands.has(Operand::grad_x) ? backward(a, operands, stream) : forward(a, operands, stream);
    case ActionKind::recompute: return recompute(a, operands, stream);
    case ActionKind::balance_experts: return balance_experts(operands, stream);
    case ActionKind::backward: return backward(a, operands, stream);
    case ActionKind::unpack_weights:
      return unpacking_[static_cast<size_t>(a.record)].run(ops_, stream, operands.address(Operand::from),
                                                           operands.address(Operand::to));
    case ActionKind::merge_rows: return merge_rows(a, operands, stream);
    case ActionKind::finish_gradient: return finish_gradient(a, operands, stream);
    case ActionKind::finish_losses: return finish_losses(operands, stream);
    case ActionKind::clip_factor:  // without clipping, of one record: each is guarded by itself
      return ops_.clip_factor(stream, {.squares = operands.at<double>(Operand::squares),
                                       .count = squares_in(operands),
                                       .clip = optim_.clip,
                                       .factor = operands.at<float>(Operand::clip)});
    case ActionKind::update_on_device: return update_on_device(a, operands, stream);
    default: fail_internal(std::string(action_name(a.kind)) + " does not run on the compute lane");
  }
}

void StepProgram::finish_losses(const Operands& operands, Stream& stream) {
  double* sums = operands.at<double>(Operand::loss_sums);
  ops_.sum_losses(stream, {.loss = operands.at<float>(Operand::losses),
                           .correct = operands.at<int32_t>(Operand::correct),
                           .tokens = workload_.tokens(),
                           .loss_sum = sums,
                           .correct_sum = reinterpret_cast<int64_t*>(sums + 1)});
}

View StepProgram::looked_up_rows(const Action& a, const Operands& operands) const {
  const int64_t record = workload_.phase(a.phase).looks_up;
  const bool reads = a.kind == ActionKind::forward || workload_.phase(a.phase).has_input();
  if (record < 0 || a.part > 0 || !reads) return {};
  const RecordWork& table = workload_.record(record);
  const int64_t rows = rows_come_[static_cast<size_t>(record)] ? rows_ : table.rows;
  return matrix(operands.address(Operand::rows), table.dtype, rows, table.row_width);
}

View StepProgram::row_gradients(const Action& a, const Operands& operands) const {
  const int64_t record = workload_.phase(a.phase).looks_up;
  if (record < 0 || a.part > 0 || !workload_.is_trained(record)) return {};
  return matrix(operands.address(Operand::row_sum), DType::f32, rows_, workload_.record(record).row_width);
}

// The losses of the tokens that a micro-batch lacks are zero.
LossViews StepProgram::losses_of(const Action& a, const Operands& operands, Stream& stream) const {
  if (!workload_.phase(a.phase).ends) return {};
  const LossViews losses{.scale = loss_scale_,
                         .loss = operands.at<float>(Operand::losses),
                         .correct = operands.at<int32_t>(Operand::correct)};
  const int64_t tokens = tokens_of(a), lacking = workload_.micro_tokens - tokens;
  if (lacking > 0) {
    stream.zero(losses.loss + tokens, static_cast<size_t>(lacking) * sizeof(float));
    stream.zero(losses.correct + tokens, static_cast<size_t>(lacking) * sizeof(int32_t));
  }
  return losses;
}

void StepProgram::forward(const Action& a, const Operands& operands, Stream& stream) {
  const Model::NumberedPhase& numbered = phases_[static_cast<size_t>(a.phase)];
  numbered.phase->forward(ops_, stream,
                          {.part = a.part,
                           .weights = weights_of(workload_, a, operands),
                           .x = activation(a, operands, Operand::x, a.phase),
                           .y = activation(a, operands, Operand::y, a.phase + 1),
                           .micro_batch = micro_batch(a, operands),
                           .tables = operands.at<float>(Operand::tables),
                           .workspace = operands.address(Operand::workspace),
                           .between_parts = operands.optional(Operand::between_parts),
                           .keep = a.keep,
                           .kept = operands.optional(Operand::kept),
                           .shared = shared_of(a, operands, stream),
                           .rows = looked_up_rows(a, operands),
                           .losses = losses_of(a, operands, stream),
                           .repeated = a.repeated,
                           .router_counts = router_counts_of(a, operands, stream)});
}

// Several phases may add to the gradient of a shared activation. It is zeroed before the first of them in backward,
// which is the highest.
SharedViews StepProgram::shared_of(const Action& a, const Operands& operands, Stream& stream) const {
  const auto view = [&](Operand as, int64_t phase) {
    if (!operands.has(as)) return View{};
    return matrix(operands.address(as), workload_.activation_dtype, tokens_of(a), workload_.phase(phase).shared_width);
  };
  const int64_t read = workload_.phase(a.phase).reads;
  const SharedViews views{.made = view(Operand::shared, a.phase),
                          .grad_made = view(Operand::grad_shared, a.phase),
                          .read = view(Operand::read, read),
                          .grad_read = view(Operand::grad_read, read)};
  if (!views.grad_read.empty() && workload_.last_reader(read) == a.phase)
    stream.zero(views.grad_read.data, static_cast<size_t>(views.grad_read.bytes()));
  return views;
}

// The number of terms in the means of the router losses: the counted tokens of every layer that has a router.
double StepProgram::routed() const {
  const Workload& w = workload_;
  const auto has_router = [](const PhaseWork& phase) { return phase.router_bytes > 0; };
  return static_cast<double>(counted_ * std::count_if(w.phases.begin(), w.phases.end(), has_router));
}

void StepProgram::balance_experts(const Operands& operands, Stream& stream) {
  const ExpertsConfig& experts = model_.config.experts;
  const double over = routed();
  ops_.balance_slopes(stream, {.choice_counts = operands.at<int64_t>(Operand::router_counts),
                               .layers = operands.count(Operand::router_counts),
                               .stride = RouterCounts::words(experts.count, experts.chosen),
                               .choices = experts.chosen,
                               .experts = experts.count,
                               .factor = workload_.aux_loss * static_cast<double>(experts.count) / over / over,
                               .slopes = operands.at<float>(Operand::router_slopes)});
}

RouterSlopes StepProgram::router_slopes(const Operands& operands) const {
  const Workload& w = workload_;
  RouterSlopes slopes;
  if (operands.has(Operand::router_slopes))
    slopes.probability = vector(operands.address(Operand::router_slopes), DType::f32, w.experts);
  if (w.z_loss > 0) slopes.squared_lse = static_cast<float>(w.z_loss / routed());
  return slopes;
}

// The sum of a record's gradient. The gaps between its tensors are zeroed before the step's first micro-batch, because
// the norm reads them too, and the record that used the slab before may have written there.
float* StepProgram::sum_of(const Action& a, const Operands& operands, int64_t nth, int64_t record, Stream& stream) {
  float* sum = operands.at<float>(Operand::sum, nth);
  if (has_second_sum(a, record)) sum += workload_.record(record).trained;
  if (a.micro_batch > 0) return sum;
  for (const ElementRange& gap : layouts_[static_cast<size_t>(record)].state_gaps())
    stream.zero(sum + gap.begin, static_cast<size_t>(gap.count) * 4);
  return sum;
}

// The head has the first of two sums, the embedding the second.
bool StepProgram::has_second_sum(const Action& a, int64_t record) const {
  return workload_.record(record).sums > 1 && !workload_.phase(a.phase).ends;
}

// Adds the second sum to the first, once both have all micro-batches. So the result does not depend on the sweeps.
void StepProgram::merge_token_rows(const Action& a, const Operands& operands, Stream& stream) {
  const auto second = [&](int64_t record) { return has_second_sum(a, record); };
  const std::vector<int64_t> records = whole_records(workload_, a);
  const auto record = std::ranges::find_if(records, second);
  if (a.micro_batch + 1 < workload_.micro_batches || record == records.end()) return;
  float* sum = operands.at<float>(Operand::sum);
  const int32_t* counting = operands.at<int32_t>(Operand::inputs) + token_ids_at();
  const TokenRows& rows = model_.embedding.token_rows();
  ops_.embedding_backward(stream, {.grad_out = rows.weight.gradient(sum + workload_.record(*record).trained),
                                   .order = counting,
                                   .begin = counting,
                                   .row = counting,
                                   .segments = rows.count(),
                                   .grad = rows.weight.gradient(sum)});
}

std::vector<float*> StepProgram::sums_of(const Action& a, const Operands& operands, Stream& stream) {
  std::vector<float*> sums;
  int64_t nth = 0;  // index among the trained records
  for (const int64_t record : whole_records(workload_, a))
    sums.push_back(workload_.is_trained(record) ? sum_of(a, operands, nth++, record, stream) : nullptr);
  return sums;
}

Phase::Backward StepProgram::backward_args(const Action& a, const Operands& operands,
                                           std::span<std::byte* const> weights, std::span<float* const> sums,
                                           Stream& stream) const {
  return {.part = a.part,
          .weights = weights,
          .x = activation(a, operands, Operand::x, a.phase),
          .grad_y = activation(a, operands, Operand::grad_y, a.phase + 1),
          .grad_x = activation(a, operands, Operand::grad_x, a.phase),
          .weight_grads = sums,
          .accumulate = a.micro_batch > 0,
          .micro_batch = micro_batch(a, operands),
          .tables = operands.at<float>(Operand::tables),
          .workspace = operands.address(Operand::workspace),
          .between_parts = operands.optional(Operand::between_parts),
          .keep = a.keep,
          .kept = operands.optional(Operand::kept),
          .shared = shared_of(a, operands, stream),
          .rows = looked_up_rows(a, operands),
          .router = router_slopes(operands),
          .row_grads = a.kind == ActionKind::recompute ? View{} : row_gradients(a, operands),
          .losses = losses_of(a, operands, stream),
          .grad_x_is_used = a.phase > first_trained_};
}

void StepProgram::recompute(const Action& a, const Operands& operands, Stream& stream) {
  const Model::NumberedPhase& numbered = phases_[static_cast<size_t>(a.phase)];
  numbered.phase->recompute(ops_, stream, backward_args(a, operands, weights_of(workload_, a, operands), {}, stream));
}

void StepProgram::backward(const Action& a, const Operands& operands, Stream& stream) {
  const std::vector<float*> sums = sums_of(a, operands, stream);
  phases_[static_cast<size_t>(a.phase)].phase->backward(
      ops_, stream, backward_args(a, operands, weights_of(workload_, a, operands), sums, stream));
  merge_token_rows(a, operands, stream);
}

void StepProgram::merge_rows(const Action& a, const Operands& operands, Stream& stream) {
  const auto& [rows, width] = std::pair(workload_.record(a.record).rows, workload_.record(a.record).row_width);
  const int32_t* counting = operands.at<int32_t>(Operand::inputs) + row_tables_at();
  ops_.embedding_backward(stream, {.grad_out = matrix(operands.address(Operand::rows), DType::f32, rows_, width),
                                   .order = counting,
                                   .begin = counting,
                                   .row = counting + rows_ + 1,
                                   .segments = rows_,
                                   .grad = matrix(operands.address(Operand::sum), DType::f32, rows, width)});
}

void StepProgram::finish_gradient(const Action& a, const Operands& operands, Stream& stream) {
  const RecordWork& record = workload_.record(a.record);
  const PartRun rows{.elements = rows_ * record.row_width};
  const auto runs = workload_.by_rows(a.record) ? std::span(&rows, 1)
                                                : std::span<const PartRun>(part_runs_[static_cast<size_t>(a.record)]);
  std::byte* rounded = operands.optional(Operand::rounded);
  const DType dtype = record.gradient_dtype();
  for (const PartRun& run : runs) {
    ops_.finish_gradient(
        stream, {.grad = vector(operands.at<float>(Operand::sum) + run.begin, DType::f32, run.elements),
                 .dtype = dtype,
                 .out = rounded ? vector(rounded + run.begin * dtype_bytes(dtype), dtype, run.elements) : View{},
                 .parts = run.parts,
                 .partials = operands.at<double>(Operand::partials),
                 .sums_of_squares = operands.at<double>(Operand::squares) + run.first});
  }
}

void StepProgram::update_on_device(const Action& a, const Operands& operands, Stream& stream) {
  const RecordWork& record = workload_.record(a.record);
  const AdamWScalars decayed = adamw_scalars(optim_.adamw);
  AdamWScalars plain = decayed;
  plain.decay = 1.0f;
  const StatePlanes planes = operands.planes(Operand::state);
  const bool rounded = operands.has(Operand::rounded);
  const std::byte* gradient = operands.address(rounded ? Operand::rounded : Operand::sum);
  const bool narrow = rounded && record.gradient_dtype() == DType::bf16;
  const bool rows = workload_.by_rows(a.record), visits = operands.visits();
  for (const TensorSpec& tensor : layouts_[static_cast<size_t>(a.record)].tensors) {
    if (!tensor.trainable) continue;
    const auto at = [&](auto* plane, int64_t offset) {
      return plane ? plane + (visits ? tensor.state_offset : offset) : nullptr;
    };
    AdamWUpdate update{
        .scalars = tensor.decays() ? decayed : plain,
        .count = tensor.elements(),
        .grad = narrow ? nullptr : reinterpret_cast<const float*>(gradient) + (rows ? 0 : tensor.state_offset),
        .m = planes.first_moments(tensor, 0),
        .v = planes.second_moments(tensor, 0),
        .weight = at(planes.weight, tensor.offset),
        .low = at(planes.low, tensor.low_offset),
        .master = at(planes.master, tensor.offset),
        .clip = operands.at<float>(Operand::clip),
        .not_finite = operands.at<int32_t>(Operand::not_finite),
        .mark = static_cast<int32_t>(a.record + 1),
        .coded = planes.coded(tensor, 0),
        .grad_bf16 = narrow ? reinterpret_cast<const bf16*>(gradient) + tensor.state_offset : nullptr};
    if (rows) {
      update.rows = operands.at<int32_t>(Operand::inputs) + row_tables_at() + rows_ + 1;
      update.row_count = rows_;
      update.cols = record.row_width;
    }
    ops_.adamw(stream, update);
  }
}

void StepProgram::gather(const Action& a, const Operands& operands, int64_t sequence) {
  const Operand table = operands.has(Operand::state) ? Operand::state : Operand::from;  // frozen: only the weights
  updater_.read_rows(a.record, operands.planes(table), step_of(sequence).touched, operands.address(Operand::to));
}

void StepProgram::update(const Action& a, const Operands& operands, int64_t sequence) {
  const Step& step = step_of(sequence);
  const bool clip = step.optim.clip > 0;
  AdamWStep adamw = step.optim.adamw;
  const Workload& w = workload_;
  const int64_t parts = clip ? w.norm_parts() : w.record(a.record).norm_parts;
  const std::span<const double> squares(operands.at<double>(Operand::after), static_cast<size_t>(parts));
  if (clip) adamw.clip_factor = clip_factor(squares, step.optim.clip);
  const bool rows = w.by_rows(a.record);
  updater_.update(a.record, operands.planes_to_update(), adamw,
                  {.data = operands.address(Operand::from), .rows = rows ? &step.touched : nullptr},
                  clip ? std::span<const double>{} : squares);
}

}  // namespace megatrain
