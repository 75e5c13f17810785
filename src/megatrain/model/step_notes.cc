#include "megatrain/model/step_notes.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "megatrain/device/device.h"
#include "megatrain/model/model.h"
#include "megatrain/ops/op_notes.h"

namespace megatrain {

namespace {

// Distinct fake addresses, which nothing reads. They are 256-byte aligned, as all slabs are, and far apart.
std::byte* made_up(int which) { return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(which) << 44); }

// A stream that ignores everything.
class NoStream final : public Stream {
 public:
  void copy(void*, const void*, size_t) override {}
  void zero(void*, size_t) override {}
  void record(Event&) override {}
  void wait(Event&) override {}
  void synchronize() override {}
  void check() override {}
};

void append(std::vector<OpNote>& to, const std::vector<OpNote>& notes) {
  to.insert(to.end(), notes.begin(), notes.end());
}

MicroBatchView made_up_batch(const NotesShape& shape) {
  MicroBatchView micro;
  micro.tokens = shape.sequences * shape.seq_len;
  micro.labels = micro.positions = micro.row = reinterpret_cast<const int32_t*>(made_up(3));
  micro.documents = {.begin = reinterpret_cast<const int32_t*>(made_up(4)),
                     .count = shape.sequences,
                     .longest = shape.seq_len,
                     .uniform = true};
  micro.random = StepRandom{.seed = 0, .step = 1, .micro_batch = 0};  // a step drops what an evaluation does not
  return micro;
}

// The operands of a phase's calls, at fake addresses.
struct MadeUp {
  MadeUp(const Phase& phase, const NotesShape& shape)
      : tokens(shape.sequences * shape.seq_len),
        x(matrix(made_up(5), shape.dtype, tokens, phase.in_width())),
        y(matrix(made_up(6), shape.dtype, tokens, phase.out_width())),
        grad_y(matrix(made_up(7), shape.dtype, tokens, phase.out_width())),
        grad_x(phase.in_width() == phase.out_width() ? grad_y
                                                     : matrix(made_up(15), shape.dtype, tokens, phase.in_width())),
        micro_batch(made_up_batch(shape)) {
    const auto of_width = [&](int place, int64_t width) {
      return width == 0 ? View{} : matrix(made_up(place), shape.dtype, tokens, width);
    };
    const int64_t read = phase.reads_shared().value_or(SharedRead{}).width;
    shared = {.made = of_width(18, phase.shared_width()),
              .grad_made = of_width(19, phase.shared_width()),
              .read = of_width(20, read),
              .grad_read = of_width(21, read)};
  }

  int64_t tokens;
  View x, y, grad_y, grad_x;
  MicroBatchView micro_batch;
  SharedViews shared;
};

// The slabs of a part's records, at fake addresses.
struct MadeUpSlabs {
  explicit MadeUpSlabs(const std::vector<int64_t>& records) {
    constexpr int kSlabs = 22;  // two per record, from this number on
    for (const int64_t r : records) {
      weights.push_back(made_up(kSlabs + 2 * static_cast<int>(r)));
      grads.push_back(reinterpret_cast<float*>(made_up(kSlabs + 2 * static_cast<int>(r) + 1)));
    }
  }
  std::vector<std::byte*> weights;
  std::vector<float*> grads;
};

}  // namespace

PhaseNotes phase_notes(const Phase& phase, const NotesShape& shape, Keep keep) {
  const MadeUp made(phase, shape);
  OpNotes ops;
  NoStream stream;
  PhaseNotes notes;
  const std::vector<std::vector<int64_t>> parts = phase.parts();
  for (size_t part = 0; part < parts.size(); ++part) {
    const MadeUpSlabs slabs(parts[part]);
    Phase::Forward forward{.part = static_cast<int64_t>(part),
                           .weights = slabs.weights,
                           .x = made.x,
                           .y = made.y,
                           .micro_batch = made.micro_batch,
                           .tables = reinterpret_cast<const float*>(made_up(1)),
                           .workspace = made_up(9),
                           .between_parts = made_up(16),
                           .keep = keep,
                           .kept = made_up(10),
                           .shared = made.shared};
    phase.forward(ops, stream, forward);
    notes.forward.push_back(ops.take());
    if (part == 0) {
      forward.repeated = true;
      phase.forward(ops, stream, forward);
      notes.repeated = ops.take();
    }
    const Phase::Backward backward{.part = static_cast<int64_t>(part),
                                   .weights = slabs.weights,
                                   .x = made.x,
                                   .grad_y = made.grad_y,
                                   .grad_x = made.grad_x,
                                   .weight_grads = slabs.grads,
                                   .accumulate = shape.accumulate,
                                   .micro_batch = made.micro_batch,
                                   .tables = reinterpret_cast<const float*>(made_up(1)),
                                   .workspace = made_up(9),
                                   .between_parts = made_up(16),
                                   .keep = keep,
                                   .kept = made_up(10),
                                   .shared = made.shared};
    phase.backward(ops, stream, backward);
    notes.backward.push_back(ops.take());
    if (part > 0 || parts.size() == 1) continue;
    phase.recompute(ops, stream, backward);
    notes.recompute = ops.take();
  }
  return notes;
}

std::vector<OpNote> PhaseNotes::all_forward() const {
  std::vector<OpNote> all;
  for (const std::vector<OpNote>& part : forward) append(all, part);
  return all;
}

std::vector<OpNote> PhaseNotes::all_backward() const {
  std::vector<OpNote> all = recompute;
  for (auto part = backward.rbegin(); part != backward.rend(); ++part) append(all, *part);
  return all;
}

std::vector<OpNote> StepNotes::recomputing() const {
  std::vector<OpNote> all = forward;
  append(all, head);
  append(all, backward);
  return all;
}

std::vector<OpNote> StepNotes::keeping() const {
  std::vector<OpNote> all = forward;
  append(all, head);
  std::copy_if(backward.begin(), backward.end(), std::back_inserter(all),
               [](const OpNote& note) { return !is_forward_call(note); });
  return all;
}

namespace {

// The lowest record that has trained tensors, or the number of records if all are frozen.
int64_t first_trained_record(const Model& model) {
  const std::vector<LayerLayout> layouts = model.layouts();
  const auto trained = [](const LayerLayout& layout) { return layout.state_elements > 0; };
  return std::find_if(layouts.begin(), layouts.end(), trained) - layouts.begin();
}

}  // namespace

std::vector<OpNote> head_notes(const Model& model, const NotesShape& shape) {
  const int64_t tokens = shape.sequences * shape.seq_len, hidden = model.config.hidden;
  const bool table_trained = model.embedding.record().state_elements > 0;
  OpNotes ops;
  NoStream stream;
  std::vector<std::byte*> weights;
  std::vector<float*> sums;
  for (const int64_t record : model.head.records()) {
    constexpr std::array kWeights = {8, 11, 15}, kSums = {10, 14, 16};
    const auto at = static_cast<size_t>(record);
    weights.push_back(made_up(kWeights[at]));
    sums.push_back(record != 1 || table_trained ? reinterpret_cast<float*>(made_up(kSums[at])) : nullptr);
  }
  model.head.backward(ops, stream,
                      {.weights = weights,
                       .x = matrix(made_up(5), shape.dtype, tokens, hidden),
                       .grad_x = matrix(made_up(7), shape.dtype, tokens, hidden),
                       .weight_grads = sums,
                       .accumulate = shape.accumulate,
                       .micro_batch = made_up_batch(shape),
                       .tables = nullptr,
                       .workspace = made_up(9),
                       .losses = {.scale = 1.0f,
                                  .loss = reinterpret_cast<float*>(made_up(12)),
                                  .correct = reinterpret_cast<int32_t*>(made_up(13))},
                       .grad_x_is_used = first_trained_record(model) + 1 < model.records()});
  return ops.take();
}

StepNotes step_notes(const ModelConfig& config, const NotesShape& shape, const TrainRules& rules) {
  const Model model = make_model(config,
                                 {.dtype = shape.dtype,
                                  .tokens = shape.sequences * shape.seq_len,
                                  .mlp_chunk = shape.mlp_chunk,
                                  .head_chunk = shape.head_chunk,
                                  .positions = shape.seq_len},
                                 rules);
  const int64_t first_trained = first_trained_record(model);
  StepNotes notes;
  for (const Model::NumberedPhase& p : model.phases()) {
    if (p.phase->ends()) continue;
    const PhaseNotes made = phase_notes(*p.phase, shape, Keep::nothing);
    append(notes.forward, made.all_forward());
    const bool below =
        std::none_of(p.records.begin(), p.records.end(), [&](int64_t record) { return record >= first_trained; });
    if (!below) append(notes.backward, made.all_backward());
  }
  notes.head = head_notes(model, shape);
  return notes;
}

}  // namespace megatrain
