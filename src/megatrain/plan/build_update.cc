// Updates on the host, on the device and of visiting state, and the transfer of gradients that waited for them.
#include <algorithm>

#include "megatrain/plan/inventory.h"
#include "megatrain/plan/schedule_builder.h"

namespace megatrain {

ScheduleBuilder::Waiting ScheduleBuilder::waiting_of(int64_t record) {
  if (!w_.is_layer_record(record)) return {Lease(), {Kind::host_record_gradient, record}};
  if (w_.clip && plan_.record(record).gradient == Tier::host) return {Lease(), {Kind::host_gradient, record}};
  Lease lease = (w_.clip ? gradient_ring_ : host_slabs_).acquire();
  const Resource place{w_.clip ? Kind::gradient_slab : Kind::host_gradient, lease.slab()};
  return {std::move(lease), place};
}

void ScheduleBuilder::update_on_host(int64_t record, Resource after, Resource waiting) {
  std::vector<Access> accesses = {reads(Operand::after, after), reads(Operand::from, waiting)};
  const std::vector<DiskPlane> away = disk_planes(w_, plan_, record);
  const auto here = [&](Kind on_disk) { return std::ranges::find(away, on_disk, &DiskPlane::kind) == away.end(); };
  if (here(Kind::disk_weights)) accesses.push_back(writes(Operand::weights, {Kind::record_weights, record}));
  if (here(Kind::disk_low_bits) || here(Kind::disk_moments))
    accesses.push_back(writes(Operand::state, {Kind::record_state, record}));
  if (!plan_.moments_on_disk(record)) {
    add(Lane::update, {.kind = ActionKind::update, .record = record}, std::move(accesses));
    return;
  }
  const Lease lease = moment_slabs_.acquire();
  const Resource slab{Kind::moment_slab, lease.slab()};
  std::vector<Access> in = {writes(Operand::to, slab)}, out = {reads(Operand::from, slab)};
  for (const DiskPlane& plane : away) {
    if (plane.bytes == 0) continue;
    in.push_back(reads(Operand::from, {plane.kind, record}));
    out.push_back(writes(Operand::to, {plane.kind, record}));
  }
  add(Lane::disk_read, {.kind = ActionKind::fetch_moments, .record = record}, std::move(in));
  accesses.push_back(writes(Operand::moments, slab));
  add(Lane::update, {.kind = ActionKind::update, .record = record}, std::move(accesses));
  add(Lane::disk_write, {.kind = ActionKind::return_moments, .record = record}, std::move(out));
}

void ScheduleBuilder::update_on_device(int64_t record) {
  std::vector<Access> accesses = waiting_on_device(record, Operand::rounded, false);
  if (accesses.empty()) accesses.push_back(reads(Operand::sum, sum_of(record)));
  accesses.insert(accesses.end(), {reads(Operand::clip, {Kind::clip}), reads(Operand::inputs, {Kind::inputs}),
                                   writes(Operand::not_finite, {Kind::not_finite, 0})});
  if (plan_.visiting(record)) {
    accesses.push_back(writes(Operand::state, {Kind::visiting_state, record}));
  } else {
    accesses.push_back(writes(Operand::state, {Kind::record_state, record}));
    accesses.push_back(writes(Operand::weights, {Kind::record_weights, record}));
  }
  add(Lane::compute, {.kind = ActionKind::update_on_device, .record = record}, std::move(accesses));
}

void ScheduleBuilder::updates() {
  bool any = false;
  for (int64_t record = 0; record < w_.record_count(); ++record) {
    any |= w_.is_trained(record) && plan_.updated_on_device(record);
    if (!plan_.visiting(record) || plan_.takes_turns(record)) continue;
    add(Lane::h2d, {.kind = ActionKind::fetch_state, .record = record},
        {reads(Operand::from, {Kind::record_weights, record}), reads(Operand::from, {Kind::record_state, record}),
         writes(Operand::to, {Kind::visiting_state, record})});
  }
  if (any) {
    std::vector<Access> accesses = all_squares();
    accesses.push_back(writes(Operand::clip, {Kind::clip}));
    add(Lane::compute, {.kind = ActionKind::clip_factor}, std::move(accesses));
  }
  for (int64_t record = 0; record < w_.record_count(); ++record) {
    if (!w_.is_trained(record)) continue;
    if (!plan_.updated_on_device(record)) {
      const Waiting waiting = waiting_of(record);
      if (plan_.record(record).gradient == Tier::hbm) collect_waiting(record, waiting.place);
      if (plan_.gradient_on_disk(record)) {
        add(Lane::disk_read, {.kind = ActionKind::fetch_gradient, .record = record},
            {reads(Operand::from, {Kind::disk_gradient, record}), writes(Operand::to, waiting.place)});
      }
      update_on_host(record, {Kind::host_report}, waiting.place);
      continue;
    }
    if (plan_.takes_turns(record)) {
      visit(record);
      continue;
    }
    update_on_device(record);
    if (plan_.visiting(record)) return_state(record, {Kind::visiting_state, record});
  }
}

void ScheduleBuilder::return_state(int64_t record, Resource visited) {
  add(Lane::d2h, {.kind = ActionKind::return_state, .record = record},
      {reads(Operand::from, visited), writes(Operand::to, {Kind::record_weights, record}),
       writes(Operand::to, {Kind::record_state, record})});
}

void ScheduleBuilder::visit(int64_t record) {
  const Lease lease = visit_slots_.acquire();
  const Resource state{Kind::visiting_state, lease.slab()}, gradient{Kind::visiting_gradient, lease.slab()};
  add(Lane::visit_in, {.kind = ActionKind::fetch_state, .record = record},
      {reads(Operand::from, {Kind::record_weights, record}), reads(Operand::from, {Kind::record_state, record}),
       reads(Operand::from, {Kind::host_gradient, record}), writes(Operand::to, state), writes(Operand::to, gradient)});
  add(Lane::visit, {.kind = ActionKind::update_on_device, .record = record},
      {reads(Operand::rounded, gradient), reads(Operand::clip, {Kind::clip}), writes(Operand::state, state),
       writes(Operand::not_finite, {Kind::not_finite, 1})});
  return_state(record, state);
}

void ScheduleBuilder::collect_waiting(int64_t record, Resource to) {
  std::vector<Access> accesses = waiting_on_device(record, Operand::from, false);
  accesses.push_back(writes(Operand::to, to));
  add(Lane::collect, {.kind = ActionKind::collect_gradient, .record = record}, std::move(accesses));
}

}  // namespace megatrain
