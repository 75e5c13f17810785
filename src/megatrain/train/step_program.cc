#include "megatrain/train/step_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

namespace megatrain {

namespace {

static_assert(kNormPartialElements == kNormBlock, "the plan sizes the norm's partials as the op fills them");

RopeTable rope_in(const EngineMemory& memory) {
  const float* table = reinterpret_cast<const float*>(memory.rope_table());
  return {table, table + memory.workload().rope_bytes / 8};
}

// Of one micro-batch. row, labels, positions, segment order: T each; segment begin, document begin: T + 1 each;
// segment row: T. That is 7 T + 2, at most 8 T: so a step's inputs are as large however it is cut into micro-batches.
int64_t micro_batch_words(int64_t tokens) { return 8 * tokens; }

// Of the step, behind its micro-batches: 0, 1, 2, ... (rows + 1), then the touched ids (rows).
int64_t row_words(int64_t rows) { return 2 * rows + 1; }

}  // namespace

int64_t input_bytes(int64_t micro_batches, int64_t micro_tokens, int64_t touched_rows) {
  return (micro_batches * micro_batch_words(micro_tokens) + row_words(touched_rows)) * 4;
}

StepProgram::StepProgram(const ModelConfig& config, const Shape& shape, Ops& ops, EngineMemory& memory,
                         std::vector<LayerRecord>& records, Updater& updater)
    : config_(config),
      ops_(ops),
      memory_(memory),
      records_(records),
      updater_(updater),
      block_(config, memory.workload().dtype, memory.workload().micro_tokens, shape.mlp_chunk, rope_in(memory)),
      head_(config, memory.workload().dtype, memory.workload().micro_tokens, shape.head_chunk),
      head_at_(head_offsets(config)),
      head_gradients_at_(head_gradients(records.back().layout())),
      below_head_is_trained_(memory.workload().first_trained() < memory.workload().head_record()),
      views_(static_cast<size_t>(memory.workload().micro_batches)),
      row_of_id_(static_cast<size_t>(config.vocab), -1) {
  for (size_t block = 1; block + 1 < records.size(); ++block)
    gradients_at_.push_back(block_gradients(records[block].layout()));
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
  for (size_t m = 0; m < batch.micro_batches.size(); ++m)
    stage_micro_batch(static_cast<int64_t>(m), batch.micro_batches[m], step.touched);
  for (const int32_t id : step.touched) row_of_id_[static_cast<size_t>(id)] = -1;
  int32_t* counting = reinterpret_cast<int32_t*>(memory_.staged_inputs()) + row_tables_at();
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
  int32_t* host = reinterpret_cast<int32_t*>(memory_.staged_inputs()) + base;
  const int32_t* device = reinterpret_cast<const int32_t*>(memory_.inputs()) + base;
  int64_t at = 0;
  const auto place = [&](int64_t words) { return std::exchange(at, at + words); };
  const int64_t row = place(tokens), labels = place(tokens), positions = place(tokens), order = place(tokens);
  const int64_t segment_begin = place(tokens + 1), documents = place(tokens + 1), segment_row = place(tokens);

  // counting sort of positions by row: stable, so ascending within a row; the padding id is in no segment
  const auto trained = [&](int64_t t) { return micro.tokens[static_cast<size_t>(t)] != config_.pad_id; };
  segment_count_.assign(touched.size() + 1, 0);
  const auto row_of = [&](int64_t t) { return row_of_id_[static_cast<size_t>(micro.tokens[static_cast<size_t>(t)])]; };
  for (int64_t t = 0; t < tokens; ++t) {
    host[row + t] = memory_.table_on_device() ? micro.tokens[static_cast<size_t>(t)] : row_of(t);
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
  views_[static_cast<size_t>(m)] = {.tokens = tokens,
                                    .row = device + row,
                                    .labels = device + labels,
                                    .positions = device + positions,
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

void StepProgram::compute(const Action& a, Stream& stream) {
  const Workload& w = memory_.workload();
  const bool first = a.micro_batch == 0;
  switch (a.kind) {
    case ActionKind::embed_forward: {
      const MicroBatchView& micro = views_[static_cast<size_t>(a.micro_batch)];
      const View table = memory_.table_on_device() ? matrix(records_[0].weights(), w.dtype, w.vocab, w.hidden)
                                                   : matrix(memory_.device_rows(), w.dtype, rows_, w.hidden);
      ops_.embedding_forward(stream, {.table = table, .index = micro.row, .out = memory_.boundary_out(a)});
      break;
    }
    case ActionKind::block_forward:
      block_.forward(ops_, stream,
                     {.block = a.record - 1,
                      .weights = memory_.weights(a),
                      .x = memory_.boundary_in(a),
                      .y = memory_.boundary_out(a),
                      .micro_batch = views_[static_cast<size_t>(a.micro_batch)],
                      .workspace = memory_.workspace(),
                      .keep = a.keep,
                      .kept = memory_.kept(a)});
      break;
    case ActionKind::block_backward: {
      const bool trained = w.is_trained(a.record);
      float* sum = trained ? memory_.gradient_sum(a) : nullptr;
      if (trained && first) {  // the norm reads over the gaps, and whoever had the slab before may have filled them
        for (const ElementRange& gap : records_[static_cast<size_t>(a.record)].layout().state_gaps())
          stream.zero(sum + gap.begin, static_cast<size_t>(gap.count) * 4);
      }
      block_.backward(ops_, stream,
                      {.block = a.record - 1,
                       .weights = memory_.weights(a),
                       .x = memory_.boundary_in(a),
                       .grad = memory_.gradient_stream(a),
                       .weight_grads = sum,
                       .gradients_at = gradients_at_[static_cast<size_t>(a.record - 1)],
                       .accumulate = !first,
                       .micro_batch = views_[static_cast<size_t>(a.micro_batch)],
                       .workspace = memory_.workspace(),
                       .keep = a.keep,
                       .kept = memory_.kept(a)});
      break;
    }
    case ActionKind::head: {
      const int64_t element = dtype_bytes(w.dtype);
      std::byte* own = memory_.head_weights(0);
      const auto own_grad = [&](int64_t at) { return at >= 0 ? memory_.head_gradient_sum(0) + at : nullptr; };
      float* tied_grad = w.is_trained(0) ? memory_.head_gradient_sum(1) : nullptr;
      head_.run(ops_, stream,
                {.norm = own + head_at_.norm * element,
                 .table = w.tied ? memory_.head_weights(1) : own + head_at_.table * element,
                 .x = memory_.boundary_in(a),
                 .scale = loss_scale_,
                 .loss = memory_.losses(a.micro_batch),
                 .correct = memory_.correct(a.micro_batch),
                 .micro_batch = views_[static_cast<size_t>(a.micro_batch)],
                 .workspace = memory_.workspace(),
                 .grad = a.training ? memory_.gradient_stream(a) : View{},
                 .grad_is_used = below_head_is_trained_,
                 .norm_grad = own_grad(head_gradients_at_.norm),
                 .table_grad = w.tied ? tied_grad : own_grad(head_gradients_at_.table),
                 .accumulate = !first});
      break;
    }
    case ActionKind::embed_backward: {
      const MicroBatchView& micro = views_[static_cast<size_t>(a.micro_batch)];
      if (first) stream.zero(memory_.row_gradient_sum(), static_cast<size_t>(rows_ * w.hidden) * 4);
      if (micro.segments == 0) break;  // nothing but padding
      ops_.embedding_backward(stream, {.grad_out = memory_.gradient_stream(a),
                                       .order = micro.segment_order,
                                       .begin = micro.segment_begin,
                                       .row = micro.segment_row,
                                       .segments = micro.segments,
                                       .grad = matrix(memory_.row_gradient_sum(), DType::f32, rows_, w.hidden)});
      break;
    }
    case ActionKind::merge_rows: {
      const int32_t* counting = reinterpret_cast<const int32_t*>(memory_.inputs()) + row_tables_at();
      ops_.embedding_backward(stream, {.grad_out = matrix(memory_.row_gradient_sum(), DType::f32, rows_, w.hidden),
                                       .order = counting,
                                       .begin = counting,
                                       .row = counting + rows_ + 1,
                                       .segments = rows_,
                                       .grad = matrix(memory_.head_gradient_sum(1), DType::f32, w.vocab, w.hidden)});
      break;
    }
    case ActionKind::finish_gradient: {
      const int64_t elements = a.record == 0 && !w.tied ? rows_ * w.hidden : w.trained_elements(a.record);
      const bool leaves = !memory_.updated_on_device(a.record);
      ops_.finish_gradient(stream, {.grad = vector(memory_.gradient_sum(a), DType::f32, elements),
                                    .dtype = w.dtype,
                                    .out = leaves ? vector(memory_.gradient_out(a), w.dtype, elements) : View{},
                                    .partials = memory_.norm_partials(),
                                    .sum_of_squares = memory_.squares(a.record)});
      break;
    }
    case ActionKind::finish_losses:
      ops_.sum_losses(stream, {.loss = memory_.losses(0),
                               .correct = memory_.correct(0),
                               .tokens = w.tokens(),
                               .loss_sum = memory_.loss_sum(),
                               .correct_sum = memory_.correct_sum()});
      break;
    case ActionKind::clip_factor: {
      const bool one = a.record >= 0;  // without clipping the guard is per record
      ops_.clip_factor(stream, {.squares = memory_.squares(one ? a.record : 0),
                                .count = one ? 1 : w.records(),
                                .clip = optim_.clip,
                                .factor = memory_.clip()});
      break;
    }
    case ActionKind::update_on_device: update_on_device(a, stream); break;
    default: break;
  }
}

void StepProgram::update_on_device(const Action& a, Stream& stream) {
  const Workload& w = memory_.workload();
  const AdamWScalars decayed = adamw_scalars(optim_.adamw);
  AdamWScalars plain = decayed;
  plain.decay = 1.0f;
  const StatePlanes planes = memory_.device_state(a);
  const bool rows = a.record == 0 && !w.tied, visits = memory_.visits(a.record);
  for (const TensorSpec& tensor : records_[static_cast<size_t>(a.record)].layout().tensors) {
    if (!tensor.trainable) continue;
    const int64_t offset = visits ? tensor.state_offset : tensor.offset;
    const auto at = [&](auto* plane) { return plane ? plane + offset : nullptr; };
    AdamWUpdate update{.scalars = tensor.decay ? decayed : plain,
                       .count = tensor.elements(),
                       .grad = memory_.gradient_sum(a) + (rows ? 0 : tensor.state_offset),
                       .m = planes.m + tensor.state_offset,
                       .v = planes.v + tensor.state_offset,
                       .weight = at(planes.weight),
                       .low = at(planes.low),
                       .master = at(planes.master),
                       .clip = memory_.clip(),
                       .not_finite = memory_.not_finite(sequence_),
                       .mark = static_cast<int32_t>(a.record + 1)};
    if (rows) {
      update.rows = reinterpret_cast<const int32_t*>(memory_.inputs()) + row_tables_at() + rows_ + 1;
      update.row_count = rows_;
      update.cols = w.hidden;
    }
    ops_.adamw(stream, update);
  }
}

void StepProgram::gather(const Action&, int64_t sequence) {
  updater_.read_rows(step_of(sequence).touched, memory_.staged_rows());
}

void StepProgram::update(const Action& a, int64_t sequence) {
  const Step& step = step_of(sequence);
  const bool clip = step.optim.clip > 0;
  AdamWStep adamw = step.optim.adamw;
  if (clip) {
    const std::span<const double> squares(memory_.host_report(), static_cast<size_t>(memory_.workload().records()));
    adamw.clip_factor = clip_factor(squares, step.optim.clip);
  }
  const bool rows = a.record == 0 && !memory_.workload().tied;
  updater_.update(a.record, adamw, {.data = memory_.host_gradient(a), .rows = rows ? &step.touched : nullptr},
                  clip ? nullptr : memory_.host_squares(a.record));
}

}  // namespace megatrain
