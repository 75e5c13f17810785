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

// Of one micro-batch. row, labels, positions, counted, segment order: T each; segment begin, document begin: T + 1
// each; segment row: T. That is 8 T + 2, at most 9 T: so a step's inputs are as large however it is cut into
// micro-batches.
int64_t micro_batch_words(int64_t tokens) { return 9 * tokens; }

// Of the step, behind its micro-batches: 0, 1, 2, ... (rows + 1), then the touched ids (rows).
int64_t row_words(int64_t rows) { return 2 * rows + 1; }

// Writes 1 for every token of a document in which something is trained, else 0, as padding is such a document. Returns
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

// The parts of a record's gradient, those that follow each other and are equally large together. Frozen ones, whose
// sums stay zero, are left out.
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

}  // namespace

int64_t input_bytes(int64_t micro_batches, int64_t micro_tokens, int64_t touched_rows) {
  return (micro_batches * micro_batch_words(micro_tokens) + row_words(touched_rows)) * 4;
}

StepProgram::StepProgram(const Model& model, Ops& ops, EngineMemory& memory, std::vector<LayerRecord>& records,
                         Updater& updater)
    : model_(model),
      ops_(ops),
      memory_(memory),
      records_(records),
      updater_(updater),
      phases_(model.layer_phases()),
      below_head_is_trained_(memory.workload().first_trained_phase() < memory.workload().head_phase()),
      views_(static_cast<size_t>(memory.workload().micro_batches)),
      row_of_id_(static_cast<size_t>(model.config.vocab), -1) {
  for (const LayerRecord& record : records) part_runs_.push_back(runs_of_parts(record.layout()));
}

StepBytes StepProgram::prepare(const Batch& batch, int64_t sequence, const OptimStep& optim) {
  sequence_ = sequence;
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
  int32_t* counting = memory_.at<int32_t>({ResourceKind::staged_inputs}) + row_tables_at();
  std::iota(counting, counting + step.touched.size() + 1, 0);
  std::copy(step.touched.begin(), step.touched.end(), counting + step.touched.size() + 1);
  rows_ = static_cast<int64_t>(step.touched.size());
  loss_scale_ = static_cast<float>(1.0 / static_cast<double>(batch.trained));
  return {.inputs = memory_.workload().input_bytes, .rows = rows_};
}

int64_t StepProgram::row_tables_at() const {
  return memory_.workload().micro_batches * micro_batch_words(memory_.workload().micro_tokens);
}

void StepProgram::stage_micro_batch(int64_t m, const MicroBatch& micro, const std::vector<int32_t>& touched) {
  const int64_t tokens = memory_.workload().micro_tokens;
  const int64_t base = m * micro_batch_words(tokens);
  int32_t* host = memory_.at<int32_t>({ResourceKind::staged_inputs}) + base;
  const int32_t* device = memory_.at<int32_t>({ResourceKind::inputs}) + base;
  int64_t at = 0;
  const auto place = [&](int64_t words) { return std::exchange(at, at + words); };
  const int64_t row = place(tokens), labels = place(tokens), positions = place(tokens), order = place(tokens);
  const int64_t counted = place(tokens);
  const int64_t segment_begin = place(tokens + 1), documents = place(tokens + 1), segment_row = place(tokens);

  // counting sort of positions by row: stable, so ascending within a row; the padding id is in no segment
  const auto trained = [&](int64_t t) { return micro.tokens[static_cast<size_t>(t)] != model_.config.pad_id; };
  segment_count_.assign(touched.size() + 1, 0);
  const auto row_of = [&](int64_t t) { return row_of_id_[static_cast<size_t>(micro.tokens[static_cast<size_t>(t)])]; };
  for (int64_t t = 0; t < tokens; ++t) {
    host[row + t] = memory_.plan().state_on_device(0) ? micro.tokens[static_cast<size_t>(t)] : row_of(t);
    if (trained(t)) ++segment_count_[static_cast<size_t>(row_of(t)) + 1];
  }
  int64_t segments = 0;
  for (size_t r = 0; r < touched.size(); ++r) {
    if (segment_count_[r + 1] > 0) {
      host[segment_row + segments] = static_cast<int32_t>(r);
      host[segment_begin + segments] = segment_count_[r];
      ++segments;
    }
    segment_count_[r + 1] += segment_count_[r];
  }
  host[segment_begin + segments] = segment_count_[touched.size()];
  for (int64_t t = 0; t < tokens; ++t) {
    if (trained(t)) host[order + segment_count_[static_cast<size_t>(row_of(t))]++] = static_cast<int32_t>(t);
  }

  std::copy(micro.labels.begin(), micro.labels.end(), host + labels);
  std::copy(micro.positions.begin(), micro.positions.end(), host + positions);
  std::copy(micro.document_begin.begin(), micro.document_begin.end(), host + documents);
  counted_ += mark_counted(micro, host + counted);
  views_[static_cast<size_t>(m)] = {.tokens = tokens,
                                    .row = device + row,
                                    .labels = device + labels,
                                    .positions = device + positions,
                                    .counted = device + counted,
                                    .documents = {.begin = device + documents,
                                                  .host_begin = host + documents,
                                                  .count = static_cast<int64_t>(micro.document_begin.size()) - 1,
                                                  .longest = micro.longest,
                                                  .uniform = micro.uniform},
                                    .segment_order = device + order,
                                    .segment_begin = device + segment_begin,
                                    .segment_row = device + segment_row,
                                    .segments = segments};
}

View StepProgram::activation(const Action& a, Operand operand, int64_t phase) const {
  const Workload& w = memory_.workload();
  if (!a.has(operand)) return {};  // of another part of the phase
  return matrix(memory_.address(a.at(operand)), w.dtype, w.micro_tokens, w.phase(phase).width);
}

void StepProgram::compute(const Action& a, Stream& stream) {
  switch (a.kind) {
    case ActionKind::embed_forward: return embed_forward(a, stream);
    case ActionKind::forward: return forward(a, stream);
    case ActionKind::head: return head(a, stream);
    case ActionKind::recompute: return recompute(a, stream);
    case ActionKind::balance_experts: return balance_experts(a, stream);
    case ActionKind::backward: return backward(a, stream);
    case ActionKind::embed_backward: return embed_backward(a, stream);
    case ActionKind::merge_rows: return merge_rows(a, stream);
    case ActionKind::finish_gradient: return finish_gradient(a, stream);
    case ActionKind::finish_losses: {
      double* sums = memory_.at<double>(a.at(Operand::loss_sums));
      return ops_.sum_losses(stream, {.loss = memory_.at<float>(a.at(Operand::losses)),
                                      .correct = memory_.at<int32_t>(a.at(Operand::correct)),
                                      .tokens = memory_.workload().tokens(),
                                      .loss_sum = sums,
                                      .correct_sum = reinterpret_cast<int64_t*>(sums + 1)});
    }
    case ActionKind::clip_factor:  // of one record, without clipping: the guard is per record
      return ops_.clip_factor(stream, {.squares = memory_.at<double>(a.at(Operand::squares)),
                                       .count = squares_of(a),
                                       .clip = optim_.clip,
                                       .factor = memory_.at<float>(a.at(Operand::clip))});
    case ActionKind::update_on_device: return update_on_device(a, stream);
    default: fail_internal(std::string(action_name(a.kind)) + " is no work of the compute lane");
  }
}

void StepProgram::embed_forward(const Action& a, Stream& stream) {
  const Workload& w = memory_.workload();
  const int64_t rows = memory_.plan().state_on_device(0) ? w.vocab : rows_;
  model_.embedding.forward(ops_, stream,
                           {.table = matrix(memory_.address(a.at(Operand::rows)), w.dtype, rows, w.hidden),
                            .index = micro_batch(a).row,
                            .out = activation(a, Operand::y, 1)});
}

std::vector<std::byte*> StepProgram::weights_of(const Action& a) const {
  std::vector<std::byte*> slabs;
  for (int64_t i = 0; i < a.count(Operand::weights); ++i) slabs.push_back(memory_.address(a.at(Operand::weights, i)));
  return slabs;
}

// nullptr where the action has none.
std::byte* StepProgram::optional(const Action& a, Operand operand) const {
  return a.has(operand) ? memory_.address(a.at(operand)) : nullptr;
}

void StepProgram::forward(const Action& a, Stream& stream) {
  phases_[static_cast<size_t>(a.phase - 1)].phase->forward(ops_, stream,
                                                           {.part = a.part,
                                                            .weights = weights_of(a),
                                                            .x = activation(a, Operand::x, a.phase),
                                                            .y = activation(a, Operand::y, a.phase + 1),
                                                            .micro_batch = micro_batch(a),
                                                            .tables = memory_.at<float>({ResourceKind::rope_table}),
                                                            .workspace = memory_.address(a.at(Operand::workspace)),
                                                            .carried = optional(a, Operand::carried),
                                                            .keep = a.keep,
                                                            .kept = optional(a, Operand::kept),
                                                            .again = a.again,
                                                            .router_counts = router_counts_of(a, stream)});
}

// Where the forward counts its router's choices, zeroed before the first micro-batch of the step.
std::byte* StepProgram::router_counts_of(const Action& a, Stream& stream) const {
  if (!a.has(Operand::router_counts)) return nullptr;
  const Resource& counts = a.at(Operand::router_counts);
  if (a.micro_batch == 0) stream.zero(memory_.address(counts), static_cast<size_t>(memory_.bytes(counts)));
  return memory_.address(counts);
}

// What the router's losses are means over: the counted tokens of every layer that has a router.
double StepProgram::routed() const {
  const Workload& w = memory_.workload();
  const auto has_router = [](const PhaseWork& phase) { return phase.router_bytes > 0; };
  return static_cast<double>(counted_ * std::count_if(w.phases.begin(), w.phases.end(), has_router));
}

void StepProgram::balance_experts(const Action& a, Stream& stream) {
  const ExpertsConfig& experts = model_.config.experts;
  const double over = routed();
  ops_.balance_slopes(stream, {.choice_counts = memory_.at<int64_t>(a.at(Operand::router_counts)),
                               .layers = a.count(Operand::router_counts),
                               .stride = RouterCounts::words(experts.count, experts.chosen),
                               .choices = experts.chosen,
                               .experts = experts.count,
                               .factor = memory_.workload().aux_loss * static_cast<double>(experts.count) / over / over,
                               .slopes = memory_.at<float>(a.at(Operand::router_slopes))});
}

RouterSlopes StepProgram::router_slopes(const Action& a) const {
  const Workload& w = memory_.workload();
  RouterSlopes slopes;
  if (a.has(Operand::router_slopes))
    slopes.probability = vector(memory_.address(a.at(Operand::router_slopes)), DType::f32, w.experts);
  if (w.z_loss > 0) slopes.squared_lse = static_cast<float>(w.z_loss / routed());
  return slopes;
}

// A sum that the first micro-batch of the step is about to fill. The norm reads over the gaps between the tensors, and
// the slab's last record may have filled them.
float* StepProgram::sum_of(const Action& a, int64_t nth, int64_t record, Stream& stream) {
  float* sum = memory_.at<float>(a.at(Operand::sum, nth));
  if (a.micro_batch > 0) return sum;
  for (const ElementRange& gap : records_[static_cast<size_t>(record)].layout().state_gaps())
    stream.zero(sum + gap.begin, static_cast<size_t>(gap.count) * 4);
  return sum;
}

Phase::Backward StepProgram::backward_args(const Action& a, std::span<std::byte* const> weights,
                                           std::span<float* const> sums) const {
  return {.part = a.part,
          .weights = weights,
          .x = activation(a, Operand::x, a.phase),
          .grad_y = activation(a, Operand::grad_y, a.phase + 1),
          .grad_x = activation(a, Operand::grad_x, a.phase),
          .weight_grads = sums,
          .accumulate = a.micro_batch > 0,
          .micro_batch = micro_batch(a),
          .tables = memory_.at<float>({ResourceKind::rope_table}),
          .workspace = memory_.address(a.at(Operand::workspace)),
          .carried = optional(a, Operand::carried),
          .keep = a.keep,
          .kept = optional(a, Operand::kept),
          .router = router_slopes(a)};
}

void StepProgram::recompute(const Action& a, Stream& stream) {
  phases_[static_cast<size_t>(a.phase - 1)].phase->recompute(ops_, stream, backward_args(a, weights_of(a), {}));
}

void StepProgram::backward(const Action& a, Stream& stream) {
  const Model::NumberedPhase& numbered = phases_[static_cast<size_t>(a.phase - 1)];
  std::vector<float*> sums;
  int64_t nth = 0;  // of what is trained
  for (const int64_t record : numbered.parts[static_cast<size_t>(a.part)])
    sums.push_back(memory_.workload().is_trained(record) ? sum_of(a, nth++, record, stream) : nullptr);
  numbered.phase->backward(ops_, stream, backward_args(a, weights_of(a), sums));
}

void StepProgram::head(const Action& a, Stream& stream) {
  const Workload& w = memory_.workload();
  // sums are there in training, of what is trained
  const bool own_trained = w.is_trained(w.head_record()), table_trained = w.tied && w.is_trained(0);
  float* own_sum = own_trained && a.has(Operand::sum) ? memory_.at<float>(a.at(Operand::sum)) : nullptr;
  float* table_sum =
      table_trained && a.has(Operand::sum) ? memory_.at<float>(a.at(Operand::sum, own_trained)) : nullptr;
  model_.head.run(ops_, stream,
                  {.weights = memory_.address(a.at(Operand::weights)),
                   .table = w.tied ? memory_.address(a.at(Operand::weights, 1)) : nullptr,
                   .x = activation(a, Operand::x, a.phase),
                   .scale = loss_scale_,
                   .loss = memory_.at<float>(a.at(Operand::losses)),
                   .correct = memory_.at<int32_t>(a.at(Operand::correct)),
                   .micro_batch = micro_batch(a),
                   .workspace = memory_.address(a.at(Operand::workspace)),
                   .grad = a.has(Operand::grad_x) ? activation(a, Operand::grad_x, a.phase) : View{},
                   .grad_is_used = below_head_is_trained_,
                   .weight_grads = own_sum,
                   .table_grads = table_sum,
                   .accumulate = a.micro_batch > 0});
}

void StepProgram::embed_backward(const Action& a, Stream& stream) {
  const Workload& w = memory_.workload();
  const MicroBatchView& micro = micro_batch(a);
  float* sum = memory_.at<float>(a.at(Operand::sum));
  if (a.micro_batch == 0) stream.zero(sum, static_cast<size_t>(rows_ * w.hidden) * 4);
  if (micro.segments == 0) return;  // nothing but padding
  model_.embedding.backward(ops_, stream,
                            {.grad_out = activation(a, Operand::grad_y, 1),
                             .order = micro.segment_order,
                             .begin = micro.segment_begin,
                             .row = micro.segment_row,
                             .segments = micro.segments,
                             .grad = matrix(sum, DType::f32, rows_, w.hidden)});
}

void StepProgram::merge_rows(const Action& a, Stream& stream) {
  const Workload& w = memory_.workload();
  const int32_t* counting = memory_.at<int32_t>(a.at(Operand::inputs)) + row_tables_at();
  ops_.embedding_backward(stream,
                          {.grad_out = matrix(memory_.address(a.at(Operand::rows)), DType::f32, rows_, w.hidden),
                           .order = counting,
                           .begin = counting,
                           .row = counting + rows_ + 1,
                           .segments = rows_,
                           .grad = matrix(memory_.address(a.at(Operand::sum)), DType::f32, w.vocab, w.hidden)});
}

void StepProgram::finish_gradient(const Action& a, Stream& stream) {
  const Workload& w = memory_.workload();
  const PartRun rows{.elements = rows_ * w.hidden};
  const bool by_rows = a.record == 0 && !w.tied;
  const auto runs = by_rows ? std::span(&rows, 1) : std::span<const PartRun>(part_runs_[static_cast<size_t>(a.record)]);
  std::byte* rounded = optional(a, Operand::rounded);
  for (const PartRun& run : runs) {
    ops_.finish_gradient(
        stream, {.grad = vector(memory_.at<float>(a.at(Operand::sum)) + run.begin, DType::f32, run.elements),
                 .dtype = w.dtype,
                 .out = rounded ? vector(rounded + run.begin * dtype_bytes(w.dtype), w.dtype, run.elements) : View{},
                 .parts = run.parts,
                 .partials = memory_.at<double>(a.at(Operand::partials)),
                 .sums_of_squares = memory_.at<double>(a.at(Operand::squares)) + run.first});
  }
}

// Sums of squares that the action reads.
int64_t StepProgram::squares_of(const Action& a) const {
  int64_t bytes = 0;
  for (int64_t i = 0; i < a.count(Operand::squares); ++i) bytes += memory_.bytes(a.at(Operand::squares, i));
  return bytes / static_cast<int64_t>(sizeof(double));
}

void StepProgram::update_on_device(const Action& a, Stream& stream) {
  const Workload& w = memory_.workload();
  const AdamWScalars decayed = adamw_scalars(optim_.adamw);
  AdamWScalars plain = decayed;
  plain.decay = 1.0f;
  const Resource& state = a.at(Operand::state);
  const StatePlanes planes = memory_.planes(state, a.record);
  const bool rounded = a.has(Operand::rounded);
  const std::byte* gradient = memory_.address(a.at(rounded ? Operand::rounded : Operand::sum));
  const bool narrow = rounded && w.dtype == DType::bf16;
  const bool rows = a.record == 0 && !w.tied, visits = state.kind == ResourceKind::visiting_state;
  for (const TensorSpec& tensor : records_[static_cast<size_t>(a.record)].layout().tensors) {
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
        .clip = memory_.at<float>(a.at(Operand::clip)),
        .not_finite = memory_.at<int32_t>({ResourceKind::not_finite, 0, sequence_ % 2}),
        .mark = static_cast<int32_t>(a.record + 1),
        .coded = planes.coded(tensor, 0),
        .grad_bf16 = narrow ? reinterpret_cast<const bf16*>(gradient) + tensor.state_offset : nullptr};
    if (rows) {
      update.rows = memory_.at<int32_t>(a.at(Operand::inputs)) + row_tables_at() + rows_ + 1;
      update.row_count = rows_;
      update.cols = w.hidden;
    }
    ops_.adamw(stream, update);
  }
}

void StepProgram::gather(const Action& a, int64_t sequence) {
  updater_.read_rows(memory_.planes({ResourceKind::record_state, 0}, 0), step_of(sequence).touched,
                     memory_.address(a.at(Operand::to)));
}

void StepProgram::update(const Action& a, int64_t sequence) {
  const Step& step = step_of(sequence);
  const bool clip = step.optim.clip > 0;
  AdamWStep adamw = step.optim.adamw;
  const Workload& w = memory_.workload();
  const int64_t parts = clip ? w.norm_parts() : w.record(a.record).norm_parts;
  const std::span<const double> squares(memory_.at<double>(a.at(Operand::after)), static_cast<size_t>(parts));
  if (clip) adamw.clip_factor = clip_factor(squares, step.optim.clip);
  const bool rows = a.record == 0 && !w.tied;
  updater_.update(a.record, memory_.planes_to_update(a), adamw,
                  {.data = memory_.address(a.at(Operand::from)), .rows = rows ? &step.touched : nullptr},
                  clip ? std::span<const double>{} : squares);
}

}  // namespace megatrain
