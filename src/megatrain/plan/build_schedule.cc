// Lists a step's actions in one sequential order; derive_waits makes it concurrent.
//
//   forward    gather and fetch the touched embedding rows; for each phase: fetch, then every micro-batch of the sweep
//   turn       head: loss and gradient of every micro-batch; the last records are still in their slots. The
//              load-balancing loss turns the router counts of forward into gradients (slopes) for backward.
//   backward   for each phase in reverse: fetch unless still there, run every micro-batch, round the gradients and send
//              them off. If only every k-th input is kept, the phases above one run forward again first.
//              A phase in parts first recomputes what its parts need for every micro-batch, then runs backward part
//              by part, from the last to the first.
//              Inputs and kept outputs that wait on the host or on disk leave in forward as each is written, and come
//              back through rings of slots.
//   update     with clipping: all records in forward order once the norm is known, so that the next step's fetches
//              follow close behind (the update frontier); without: each record as its gradient arrives.
//              State that lives on or visits the device is updated there, on the compute lane. Visits that take turns
//              in slots have lanes of their own, so that they overlap the next step.
//              Moments that live on disk are in a slab of a ring from when they are read until they are written back,
//              together with weights and low bits that live on disk. Weights on disk are staged in another ring when
//              they are fetched. Gradients that wait on disk or on the device also pass through a ring.
//
// Backward ends at the lowest phase that has a trained record. Frozen records have no gradients, so they have nothing
// to send or to update.
#include <algorithm>

#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/order.h"
#include "megatrain/plan/schedule_builder.h"

namespace megatrain {

std::vector<Action> ScheduleBuilder::build() {
  fetch_inputs();
  int64_t first = 0;
  for (size_t sweep = 0; sweep < plan_.sweeps.size(); ++sweep) {
    last_sweep_ = sweep + 1 == plan_.sweeps.size();
    make_groups(first, plan_.sweeps[sweep]);
    forward();
    head();
    if (training_ && w_.aux_loss > 0) balance_experts();
    if (training_) backward();
    first += plan_.sweeps[sweep];
  }
  finish_losses();
  report();
  if (training_ && w_.clip) updates();
  return std::move(actions_);
}

void ScheduleBuilder::add(Lane lane, Action action, std::vector<Access> accesses) {
  action.lane = lane;
  action.accesses = std::move(accesses);
  actions_.push_back(std::move(action));
}

void ScheduleBuilder::make_groups(int64_t first, int64_t width) {
  const int64_t groups = std::min(width, most_groups_);
  groups_.clear();
  for (int64_t local = 0; local < groups; ++local) {
    const int64_t begin = width * local / groups, end = width * (local + 1) / groups;
    groups_.push_back({first + begin, end - begin, local});
  }
  all_groups_.insert(all_groups_.end(), groups_.begin(), groups_.end());
}

Action ScheduleBuilder::of_phase(ActionKind kind, int64_t phase, const Group& group, int64_t part) const {
  return {.kind = kind,
          .phase = phase,
          .part = part,
          .record = w_.phase(phase).records_of(part).front(),
          .micro_batch = group.first,
          .micro_batches = group.count,
          .keep = training_ && has_backward(phase) ? plan_.phase(phase).keep : Keep::nothing};
}

void ScheduleBuilder::fetch_inputs() {
  add(Lane::h2d, {.kind = ActionKind::fetch_inputs},
      {reads(Operand::from, {Kind::staged_inputs}), writes(Operand::to, {Kind::inputs})});
  for (int64_t record = 0; record < w_.record_count(); ++record) {
    if (!w_.is_looked_up(record) || plan_.state_on_device(record)) continue;
    const bool trained = w_.is_trained(record);
    std::vector<Access> accesses = {writes(Operand::to, {Kind::staged_rows, record}),
                                    {Operand::from, {Kind::record_weights, record}, trained}};
    if (trained) accesses.push_back(writes(Operand::state, {Kind::record_state, record}));  // deferred row updates
    add(Lane::gather, {.kind = ActionKind::gather_rows, .record = record}, std::move(accesses));
    add(Lane::h2d, {.kind = ActionKind::fetch_rows, .record = record},
        {reads(Operand::from, {Kind::staged_rows, record}), writes(Operand::to, {Kind::device_rows, record})});
  }
}

std::vector<Access> ScheduleBuilder::all_squares() const {
  std::vector<Access> accesses;
  for (int64_t record = 0; record < w_.record_count(); ++record)
    accesses.push_back(reads(Operand::squares, {Kind::squares, record}));
  return accesses;
}

std::vector<Access> ScheduleBuilder::all_router_counts() const {
  std::vector<Access> accesses;
  for (int64_t phase = 1; phase < w_.head_phase(); ++phase) {
    if (w_.phase(phase).router_bytes > 0)
      accesses.push_back(reads(Operand::router_counts, {Kind::router_counts, phase}));
  }
  return accesses;
}

void ScheduleBuilder::finish_losses() {
  std::vector<Access> accesses = {writes(Operand::loss_sums, {Kind::loss_sums})};
  for (const Group& group : all_groups_) {
    accesses.push_back(reads(Operand::losses, {Kind::losses, 0, group.first}));
    accesses.push_back(reads(Operand::correct, {Kind::correct, 0, group.first}));
  }
  add(Lane::compute, {.kind = ActionKind::finish_losses}, std::move(accesses));
}

void ScheduleBuilder::report() {
  std::vector<Access> accesses = all_squares();
  accesses.push_back(reads(Operand::loss_sums, {Kind::loss_sums}));
  if (training_) {
    const std::vector<Access> counts = all_router_counts();
    accesses.insert(accesses.end(), counts.begin(), counts.end());
  }
  for (int64_t lane = 0; lane < plan_.update_lanes(); ++lane)
    accesses.push_back(reads(Operand::not_finite, {Kind::not_finite, lane, 1}));
  accesses.push_back(writes(Operand::to, {Kind::host_report}));
  add(Lane::d2h, {.kind = ActionKind::report}, std::move(accesses));
}

Schedule build_schedule(const Workload& workload, const Plan& plan, StepMode mode) {
  check_plan(workload, plan);
  Schedule schedule{.actions = ScheduleBuilder(workload, plan, mode, workload.micro_batches).build(),
                    .training = mode == StepMode::train};
  derive_waits(schedule.actions, plan.serial);
  return schedule;
}

std::vector<Action> grouped_actions(const Workload& workload, const Plan& plan, int64_t groups) {
  return ScheduleBuilder(workload, plan, StepMode::train, groups).build();
}

}  // namespace megatrain
