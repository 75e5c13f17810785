// The head, backward through the phases, and finished gradients.
#include <algorithm>

#include "megatrain/plan/inventory.h"
#include "megatrain/plan/schedule_builder.h"

namespace megatrain {

std::vector<Access> ScheduleBuilder::waiting_on_device(int64_t record, Operand as, bool write) const {
  const std::optional<Resource> place = waiting_gradient_of(w_, plan_, record);
  const int64_t widest = *std::max_element(plan_.sweeps.begin(), plan_.sweeps.end());
  const int64_t parts = place && place->kind == Kind::boundary ? std::min(widest, most_groups_) : 1;
  std::vector<Access> accesses;
  for (int64_t b = 0; place && b < parts; ++b) accesses.push_back({as, {place->kind, place->a, b}, write});
  return accesses;
}

void ScheduleBuilder::add_sums(std::vector<Access>& accesses, int64_t phase, int64_t part) const {
  for (const int64_t record : w_.phase(phase).records_of(part)) {
    if (!w_.is_trained(record)) continue;
    const bool rows = record == w_.phase(phase).looks_up;
    accesses.push_back(rows ? writes(Operand::row_sum, {Kind::row_gradient_sum, record})
                            : writes(Operand::sum, sum_of(record)));
  }
}

void ScheduleBuilder::leave_phase(int64_t phase, int64_t part) {
  for (const int64_t record : w_.phase(phase).records_of(part)) {
    if (!w_.is_trained(record) || (!w_.is_layer_record(record) && w_.phase_of(record) != phase)) continue;
    // If another phase needs the whole table, the table has a gradient of its own as well as those of its rows. The two
    // are merged only after all micro-batches of both are summed, which keeps the result independent of the sweeps.
    if (w_.is_looked_up(record) && !w_.by_rows(record)) {
      add(Lane::compute, {.kind = ActionKind::merge_rows, .record = record},
          {reads(Operand::rows, {Kind::row_gradient_sum, record}), reads(Operand::inputs, {Kind::inputs}),
           writes(Operand::sum, sum_of(record))});
    }
    if (!w_.is_layer_record(record)) {
      leave(record, {Kind::record_gradient_out, record});
      continue;
    }
    const Lease out = stays_on_device(record) ? Lease() : out_slabs_.acquire();
    leave(record, {Kind::gradient_out, out.held() ? out.slab() : -1});
  }
}

void ScheduleBuilder::head() {
  const int64_t phase = w_.head_phase();
  stream_ = 0;
  const std::vector<Access> weights = hold_weights(phase);
  for (const Group& group : groups_) {
    Action action = of_phase(ActionKind::head, phase, group);
    std::vector<Access> accesses = of_part(weights, action, group);
    accesses.insert(accesses.end(), {reads(Operand::x, {Kind::boundary, phase, group.local}),
                                     writes(Operand::losses, {Kind::losses, 0, group.first}),
                                     writes(Operand::correct, {Kind::correct, 0, group.first})});
    if (training_) {
      accesses.push_back(writes(Operand::grad_x, stream(group)));
      add_sums(accesses, phase);
    }
    add(Lane::compute, std::move(action), std::move(accesses));
  }
  if (training_ && last_sweep_) leave_phase(phase);
}

void ScheduleBuilder::balance_experts() {
  std::vector<Access> accesses = all_router_counts();
  accesses.push_back(writes(Operand::router_slopes, {Kind::router_slopes}));
  add(Lane::compute, {.kind = ActionKind::balance_experts}, std::move(accesses));
}

void ScheduleBuilder::recompute(const Place& boundary, int64_t top) {
  for (int64_t phase = boundary.phase; phase < top; ++phase) {
    forward_phase(
        phase, [&](const Group& group) { return input_of(phase, boundary, group); },
        [&](const Group& group) {
          return Resource{Kind::recomputed, above_boundary(phase + 1), group.local};
        },
        [](const Group&) {}, true);
  }
}

ScheduleBuilder::Place ScheduleBuilder::fetch_boundary(int64_t phase) {
  Place place = place_for(phase);
  for (const Group& group : groups_) {
    if (place.lease.held()) bring_back(input_away(phase), group, place.resource(group));
  }
  return place;
}

void ScheduleBuilder::backward() {
  Place boundary;  // of the current phases
  const int64_t top = w_.head_phase() - 1;
  for (int64_t phase = top; phase >= first_trained_; --phase) {
    if (w_.phase(phase).has_input()) {
      const int64_t above = above_boundary(phase);
      if (phase == top || above == plan_.input_every - 1) {
        boundary = Place();
        boundary = fetch_boundary(phase - above);
        recompute(boundary, phase);
      }
    }
    hold_kept(phase, true);
    if (w_.phase(phase).in_parts()) recompute_parts(phase, boundary);
    const int64_t from = stream_;
    if (w_.phase(phase).width != w_.phase(phase + 1).width) stream_ = 1 - stream_;
    for (int64_t part = w_.phase(phase).part_count() - 1; part >= 0; --part) backward_part(phase, part, boundary, from);
  }
}

void ScheduleBuilder::recompute_parts(int64_t phase, const Place& boundary) {
  const std::vector<Access> weights = hold_weights(phase);
  for (const Group& group : groups_) {
    Action action = of_phase(ActionKind::recompute, phase, group);
    std::vector<Access> accesses = of_part(weights, action, group);
    accesses.push_back(reads(Operand::x, input_of(phase, boundary, group)));
    add_rows(accesses, phase);
    add(Lane::compute, std::move(action), std::move(accesses));
  }
}

void ScheduleBuilder::backward_part(int64_t phase, int64_t part, const Place& boundary, int64_t from) {
  const std::vector<Access> weights = hold_weights(phase, part);
  for (const Group& group : groups_) {
    Action action = of_phase(ActionKind::backward, phase, group, part);
    std::vector<Access> accesses = of_part(weights, action, group);
    accesses.push_back(reads(Operand::grad_y, {Kind::gradient_stream, from, group.local}));
    if (part == 0 && w_.phase(phase).has_input()) {
      accesses.push_back(reads(Operand::x, input_of(phase, boundary, group)));
      add_rows(accesses, phase);
      accesses.push_back(writes(Operand::grad_x, stream(group)));
      if (w_.aux_loss > 0 && w_.phase(phase).router_bytes > 0)
        accesses.push_back(reads(Operand::router_slopes, {Kind::router_slopes}));
    }
    add_sums(accesses, phase, part);
    add(Lane::compute, std::move(action), std::move(accesses));
  }
  if (last_sweep_) leave_phase(phase, part);
}

void ScheduleBuilder::leave(int64_t record, Resource out) {
  const Resource sum = sum_of(record), squares{Kind::squares, record};
  std::vector<Access> accesses = {reads(Operand::sum, sum), writes(Operand::partials, {Kind::norm_partials}),
                                  writes(Operand::squares, squares)};
  if (stays_on_device(record)) {
    const std::vector<Access> waiting = waiting_on_device(record, Operand::rounded, true);
    accesses.insert(accesses.end(), waiting.begin(), waiting.end());
    add(Lane::compute, {.kind = ActionKind::finish_gradient, .record = record}, std::move(accesses));
    if (w_.clip) return;
    add(Lane::compute, {.kind = ActionKind::clip_factor, .record = record},
        {reads(Operand::squares, squares), writes(Operand::clip, {Kind::clip})});
    update_on_device(record);
    return;
  }
  accesses.push_back(writes(Operand::rounded, out));
  add(Lane::compute, {.kind = ActionKind::finish_gradient, .record = record}, std::move(accesses));
  const Waiting waiting = waiting_of(record);
  add(Lane::d2h, {.kind = ActionKind::offload_gradient, .record = record},
      {reads(Operand::from, out), reads(Operand::squares, squares), writes(Operand::to, waiting.place),
       writes(Operand::to, {Kind::host_squares, record})});
  if (plan_.gradient_on_disk(record)) {
    add(Lane::disk_write, {.kind = ActionKind::store_gradient, .record = record},
        {reads(Operand::from, waiting.place), writes(Operand::to, {Kind::disk_gradient, record})});
  }
  if (!w_.clip) update_on_host(record, {Kind::host_squares, record}, waiting.place);
}

Resource ScheduleBuilder::sum_of(int64_t record) const {
  if (w_.is_layer_record(record)) return gradient_sum_of(w_, plan_, record);
  return {w_.by_rows(record) ? Kind::row_gradient_sum : Kind::gradient_sum, record};
}

}  // namespace megatrain
