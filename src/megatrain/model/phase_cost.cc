#include "megatrain/model/phase_cost.h"

#include "megatrain/ops/note_cost.h"

namespace megatrain {

namespace {

void add(CallCost& sum, const std::vector<OpNote>& notes) {
  for (const OpNote& note : notes) {
    const double flops = note_flops(note), recurrence = recurrence_flops(note);
    sum.flops += flops;
    sum.recurrence += recurrence;
    if (attention_length(note)) sum.attention += flops;
    if (flops == 0 && recurrence == 0) sum.bytes += note_bytes(note);
  }
}

CallCost cost_of(const std::vector<OpNote>& notes) {
  CallCost sum;
  add(sum, notes);
  return sum;
}

CallCost forward_cost(const PhaseNotes& notes) {
  CallCost sum;
  for (const std::vector<OpNote>& part : notes.forward) add(sum, part);
  return sum;
}

CallCost backward_cost(const PhaseNotes& notes) {
  CallCost sum = cost_of(notes.recompute);
  for (auto part = notes.backward.rbegin(); part != notes.backward.rend(); ++part) add(sum, *part);
  return sum;
}

}  // namespace

PhaseCost phase_cost(const Phase& phase, const NotesShape& shape) {
  const int32_t levels = static_cast<int32_t>(phase.keep_levels().size());
  const PhaseNotes notes = phase_notes(phase, shape, Keep{levels - 1});
  PhaseCost cost{.forward = forward_cost(notes), .backward = backward_cost(notes), .levels = {}, .parts = {}};
  const auto less = [](const CallCost& a, const CallCost& b) {
    return CallCost{.flops = a.flops - b.flops,
                    .attention = a.attention - b.attention,
                    .recurrence = a.recurrence - b.recurrence,
                    .bytes = a.bytes - b.bytes};
  };
  for (int32_t level = 0; level < levels; ++level) {
    const PhaseNotes kept = phase_notes(phase, shape, Keep{level});
    cost.levels.push_back({.recomputed = less(backward_cost(kept), cost.backward),
                           .spared = less(cost_of(kept.forward.front()), cost_of(kept.repeated))});
  }
  for (size_t part = 0; part < notes.forward.size(); ++part)
    cost.parts.push_back({.forward = cost_of(notes.forward[part]), .backward = cost_of(notes.backward[part])});
  return cost;
}

CallCost head_cost(const Model& model, const NotesShape& shape) { return cost_of(head_notes(model, shape)); }

}  // namespace megatrain
