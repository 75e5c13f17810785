// The movement of weights and activations in the forward passes of a sweep.
#include <algorithm>

#include "megatrain/plan/inventory.h"
#include "megatrain/plan/schedule_builder.h"

namespace megatrain {

ScheduleBuilder::Place ScheduleBuilder::place_for(int64_t phase) {
  Place place;
  place.phase = phase;
  if (passes_through_slot(phase)) place.lease = boundary_slots_.acquire();
  return place;
}

void ScheduleBuilder::offload_boundary(const Place& place, const Group& group) {
  if (!training_ || !place.lease.held() || !has_backward(place.phase) || above_boundary(place.phase) > 0) return;
  offload(input_away(place.phase), group, place.resource(group));
}

void ScheduleBuilder::offload(const Away& away, const Group& group, Resource from) {
  const Waiting waiting = on_host(away, group);
  add(Lane::d2h, of_phase(ActionKind::offload_activations, away.phase, group),
      {reads(Operand::from, from), writes(Operand::to, waiting.place)});
  if (away.tier != Tier::disk) return;
  add(Lane::disk_write, of_phase(ActionKind::store_activations, away.phase, group),
      {reads(Operand::from, waiting.place), writes(Operand::to, {away.on_disk, away.phase, group.first})});
}

void ScheduleBuilder::bring_back(const Away& away, const Group& group, Resource to) {
  const Waiting waiting = on_host(away, group);
  if (away.tier == Tier::disk) {
    add(Lane::disk_read, of_phase(ActionKind::read_activations, away.phase, group),
        {reads(Operand::from, {away.on_disk, away.phase, group.first}), writes(Operand::to, waiting.place)});
  }
  add(Lane::h2d, of_phase(ActionKind::fetch_activations, away.phase, group),
      {reads(Operand::from, waiting.place), writes(Operand::to, to)});
}

ScheduleBuilder::Waiting ScheduleBuilder::on_host(const Away& away, const Group& group) {
  if (away.tier == Tier::host) return {Lease(), {away.on_host, away.phase, group.first}};
  Lease lease = boundary_ring_.acquire();
  const Resource slab{Kind::boundary_slab, lease.slab()};
  return {std::move(lease), slab};
}

void ScheduleBuilder::fetch(int64_t record, Resource into) {
  Resource from{Kind::record_weights, record};
  Lease lease;
  if (plan_.weights_staged(record)) {
    const Kind stored = plan_.weights_in_files(record) ? Kind::file_weights : Kind::disk_weights;
    lease = weight_slabs_.acquire();
    from = {Kind::weight_slab, lease.slab()};
    add(Lane::disk_read, {.kind = ActionKind::stage_weights, .record = record},
        {reads(Operand::from, {stored, record}), writes(Operand::to, from)});
  }
  add(Lane::h2d, {.kind = ActionKind::fetch_weights, .record = record},
      {reads(Operand::from, from), writes(Operand::to, into)});
}

void ScheduleBuilder::bring(int64_t record, Resource into) {
  if (!w_.is_packed(record)) return fetch(record, into);
  Resource packed{Kind::record_weights, record};
  Lease lease;
  if (!plan_.state_on_device(record)) {
    lease = packed_slots_.acquire();
    packed = {Kind::packed_slot, lease.slab()};
    fetch(record, packed);
  }
  add(Lane::compute, {.kind = ActionKind::unpack_weights, .record = record},
      {reads(Operand::from, packed), writes(Operand::to, into)});
}

Resource ScheduleBuilder::hold_record(int64_t record) {
  if (plan_.takes_slot(w_, record)) {
    const Kind kind = slot_rings_.of(record).kind;
    WarmSlots& slots = slots_[slot_rings_.is_small(record)];
    return {kind, slots.hold(record, [&](int64_t slot) { bring(record, {kind, slot}); })};
  }
  if (plan_.state_on_device(record)) return {Kind::record_weights, record};
  const Resource at{Kind::resident_weights, record};
  if (resident_.insert(record).second) bring(record, at);
  return at;
}

std::vector<Access> ScheduleBuilder::hold_weights(int64_t phase, int64_t part) {
  std::vector<Access> accesses;
  for (const int64_t record : w_.phase(phase).records_of(part)) {
    if (record != w_.phase(phase).looks_up) accesses.push_back(reads(Operand::weights, hold_record(record)));
  }
  return accesses;
}

void ScheduleBuilder::add_rows(std::vector<Access>& accesses, int64_t phase) const {
  const int64_t table = w_.phase(phase).looks_up;
  if (table < 0) return;
  const Kind kind = plan_.state_on_device(table) ? Kind::record_weights : Kind::device_rows;
  accesses.push_back(reads(Operand::rows, {kind, table}));
}

std::vector<Access> ScheduleBuilder::of_part(const std::vector<Access>& weights, const Action& action,
                                             const Group& group) const {
  std::vector<Access> accesses = weights;
  accesses.push_back(reads(Operand::inputs, {Kind::inputs}));
  accesses.push_back(reads(Operand::tables, {Kind::rope_table}));
  accesses.push_back(writes(Operand::workspace, {Kind::workspace}));
  if (w_.phase(action.phase).in_parts())
    accesses.push_back(writes(Operand::between_parts, {Kind::between_parts, 0, group.local}));
  add_kept(action, accesses, group);
  if (action.part == 0) add_shared(action, accesses, group);
  return accesses;
}

void ScheduleBuilder::add_shared(const Action& action, std::vector<Access>& accesses, const Group& group) const {
  const PhaseWork& phase = w_.phase(action.phase);
  const bool backward = action.kind == ActionKind::backward;
  if (phase.shared_width > 0) {
    accesses.push_back(writes(Operand::shared, {Kind::shared, action.phase, group.local}));
    if (backward) accesses.push_back(writes(Operand::grad_shared, {Kind::shared_gradient, action.phase, group.local}));
  }
  if (phase.reads >= 0) {
    accesses.push_back(reads(Operand::read, {Kind::shared, phase.reads, group.local}));
    if (backward && has_backward(phase.reads))
      accesses.push_back(writes(Operand::grad_read, {Kind::shared_gradient, phase.reads, group.local}));
  }
}

void ScheduleBuilder::forward_phase(int64_t phase, const PlaceOf& x, const PlaceOf& y, const Written& written,
                                    bool repeated) {
  const int64_t last = w_.phase(phase).part_count() - 1;
  hold_kept(phase, repeated);
  for (int64_t part = 0; part <= last; ++part) {
    const std::vector<Access> weights = hold_weights(phase, part);
    for (const Group& group : groups_) {
      Action action = of_phase(ActionKind::forward, phase, group, part);
      action.repeated = repeated;
      std::vector<Access> accesses = of_part(weights, action, group);
      if (part == 0 && w_.phase(phase).has_input()) accesses.push_back(reads(Operand::x, x(group)));
      if (part == 0) add_rows(accesses, phase);
      if (part == 0 && training_ && !repeated && w_.phase(phase).router_bytes > 0)
        accesses.push_back(writes(Operand::router_counts, {Kind::router_counts, phase}));
      if (part == last) accesses.push_back(writes(Operand::y, y(group)));
      add(Lane::compute, std::move(action), std::move(accesses));
      if (part == last && !repeated && keeps_away(phase)) offload(kept_away(phase), group, kept_at(phase, group));
      if (part == last) written(group);
    }
  }
}

void ScheduleBuilder::forward() {
  Place in;
  for (int64_t phase = 0; !w_.phase(phase).ends; ++phase) {
    Place out = place_for(phase + 1);
    forward_phase(
        phase, [&](const Group& group) { return in.resource(group); },
        [&](const Group& group) { return out.resource(group); },
        [&](const Group& group) { offload_boundary(out, group); }, false);
    in = std::move(out);
  }
}

void ScheduleBuilder::add_kept(const Action& action, std::vector<Access>& accesses, const Group& group) const {
  if (!training_ || !has_backward(action.phase)) return;
  if (w_.kept_bytes(action.phase, action.keep) > 0)
    accesses.push_back(writes(Operand::kept, kept_at(action.phase, group)));
}

void ScheduleBuilder::hold_kept(int64_t phase, bool written) {
  if (!keeps_away(phase)) return;
  kept_slot_ = kept_slots_.hold(phase, [&](int64_t slot) {
    if (!written) return;
    for (const Group& group : groups_) bring_back(kept_away(phase), group, {Kind::kept_slot, slot, group.local});
  });
}

}  // namespace megatrain
