// The cost model: how long a step's actions take on this machine, and when each can begin. An action begins when its
// lane is free and every earlier action that it conflicts with is done. That is exactly when its waits are satisfied.
#include "megatrain/plan/estimate.h"

#include <algorithm>
#include <numeric>

#include "megatrain/plan/inventory.h"
#include "megatrain/plan/schedule.h"
#include "megatrain/plan/slot_rings.h"

namespace megatrain {

namespace {

// Slowdown of incoming visits while the host updates, since both use host memory.
constexpr double kBesideUpdates = 1.3;
// If visits take turns, a step takes this much longer than the walk predicts, because copies and kernels wait for each
// other when they hand over a slot. A 5.75B step of 1.66 s by the walk took 1.73 to 1.85 s.
constexpr double kTurns = 1.02;
constexpr double kFinishBytes = 6;  // moved per gradient element that is rounded and whose square is summed

double as_double(int64_t value) { return static_cast<double>(value); }

// For one token through one phase, or a part of it.
double forward_seconds(const PhaseWork& phase, int64_t part, const MachineProfile& m) {
  if (!phase.in_parts()) return m.compute_seconds(phase.forward_flops, phase.recurrence.forward);
  const PartWork& work = phase.parts[static_cast<size_t>(part)];
  return m.compute_seconds(work.forward_flops, work.recurrence.forward);
}
double recompute_seconds(const PhaseWork& phase, const MachineProfile& m, Keep keep) {
  const KeepWork& level = phase.level(keep);
  return m.compute_seconds(level.recomputed_flops, level.recomputed_recurrence) +
         level.recomputed_bytes / m.hbm_bytes_per_s;
}
double backward_seconds(const PhaseWork& phase, int64_t part, const MachineProfile& m, Keep keep) {
  if (!phase.in_parts())
    return m.compute_seconds(phase.backward_flops, phase.recurrence.backward) + recompute_seconds(phase, m, keep);
  const PartWork& work = phase.parts[static_cast<size_t>(part)];
  return m.compute_seconds(work.backward_flops, work.recurrence.backward);
}

// How long one action takes by itself.
class ActionCosts {
 public:
  ActionCosts(const Workload& w, const Plan& plan, const MachineProfile& m) : w_(w), plan_(plan), m_(m) {}

  double operator()(const Action& a) const {
    const double tokens = as_double(a.micro_batches * w_.micro_tokens);
    switch (a.kind) {
      case ActionKind::gather_rows: return update_seconds(a.record, w_.row_elements(a.record));
      case ActionKind::fetch_inputs: return as_double(w_.input_bytes) / m_.h2d_bytes_per_s;
      case ActionKind::fetch_rows:
        return as_double(w_.row_elements(a.record) * w_.element_bytes(a.record)) / m_.h2d_bytes_per_s;
      case ActionKind::fetch_weights: return as_double(w_.stored_bytes(a.record)) / m_.h2d_bytes_per_s;
      case ActionKind::unpack_weights:
        return as_double(w_.stored_bytes(a.record) + w_.weight_bytes(a.record)) / m_.hbm_bytes_per_s;
      case ActionKind::fetch_activations: return as_double(activation_bytes(a)) / m_.h2d_bytes_per_s;
      case ActionKind::fetch_state:
        return as_double(w_.visiting_bytes(a.record) +
                         (plan_.takes_turns(a.record) ? w_.gradient_bytes(a.record) : 0)) /
               m_.h2d_bytes_per_s;
      case ActionKind::offload_activations: return as_double(activation_bytes(a)) / m_.d2h_bytes_per_s;
      case ActionKind::collect_gradient:
      case ActionKind::offload_gradient: return as_double(w_.gradient_bytes(a.record)) / m_.d2h_bytes_per_s;
      case ActionKind::return_state: return as_double(w_.visiting_bytes(a.record)) / m_.d2h_bytes_per_s;
      case ActionKind::forward: {
        const bool spared = a.repeated && a.part == 0;
        const KeepWork& level = w_.phase(a.phase).level(a.keep);
        const double less = spared ? m_.compute_seconds(level.spared_flops, level.spared_recurrence) : 0;
        return tokens * (forward_seconds(w_.phase(a.phase), a.part, m_) - less);
      }
      case ActionKind::head:
        return tokens *
               (forward_seconds(w_.phase(a.phase), 0, m_) + backward_seconds(w_.phase(a.phase), 0, m_, a.keep));
      case ActionKind::recompute: return tokens * recompute_seconds(w_.phase(a.phase), m_, a.keep);
      case ActionKind::backward: return tokens * backward_seconds(w_.phase(a.phase), a.part, m_, a.keep);
      case ActionKind::finish_gradient:
        return as_double(w_.gradient_elements(a.record)) * kFinishBytes / m_.hbm_bytes_per_s;
      case ActionKind::update_on_device:
        return (as_double(w_.record(a.record).trained * (a.has(Operand::sum) ? 4 : w_.rounded_bytes(a.record))) +
                2 * as_double(w_.visiting_bytes(a.record))) /
               m_.hbm_bytes_per_s;
      case ActionKind::update: {
        // the other rows of the embedding are brought up to date, one slice per step
        const int64_t others = w_.by_rows(a.record) ? w_.record(a.record).trained / kRowSlices : 0;
        return update_seconds(a.record, w_.gradient_elements(a.record) + others);
      }
      case ActionKind::stage_weights: {
        const bool files = plan_.weights_in_files(a.record);
        return as_double(files ? w_.record(a.record).file_bytes : w_.disk_weight_bytes(a.record)) /
               m_.disk_read_bytes_per_s;
      }
      case ActionKind::fetch_moments: return as_double(disk_bytes(a.record)) / beside(m_.disk_read_bytes_per_s);
      case ActionKind::fetch_gradient: return as_double(w_.disk_gradient_bytes(a.record)) / m_.disk_read_bytes_per_s;
      case ActionKind::return_moments: return as_double(disk_bytes(a.record)) / beside(m_.disk_write_bytes_per_s);
      case ActionKind::store_gradient: return as_double(w_.disk_gradient_bytes(a.record)) / m_.disk_write_bytes_per_s;
      case ActionKind::read_activations: return as_double(stored_bytes(a)) / m_.disk_read_bytes_per_s;
      case ActionKind::store_activations: return as_double(stored_bytes(a)) / m_.disk_write_bytes_per_s;
      default: return 0;  // negligible beside the others
    }
  }

  // How much slower the host's updates are while copies use this share of the link's bandwidth.
  double slower_update(double link_share) const {
    for (int64_t record = 0; record < w_.record_count(); ++record) {
      if (w_.is_trained(record) && !w_.is_looked_up(record))
        return update_seconds(record, 1, link_share) / update_seconds(record, 1);
    }
    return 1;
  }

 private:
  double update_seconds(int64_t record, int64_t elements, double link_share = 0) const {
    const double count = as_double(elements);
    return m_.update_seconds(count, count * host_update_bytes(record), w_.state.moments, link_share);
  }
  // Speed of one direction of the disk while equally much moves in the other direction, as with moments.
  double beside(double disk_bytes_per_s) const {
    return m_.disk_both_bytes_per_s > 0 ? std::min(disk_bytes_per_s, m_.disk_both_bytes_per_s / 2) : disk_bytes_per_s;
  }
  int64_t disk_bytes(int64_t record) const { return update_slab_bytes(w_, plan_, record); }
  int64_t stored_bytes(const Action& a) const {
    return a.micro_batches * round_up(moved_activation_bytes(w_, a), kDiskAlignment);
  }
  int64_t activation_bytes(const Action& a) const { return a.micro_batches * moved_activation_bytes(w_, a); }
  // Bytes moved per element: its gradient is read, its weight and state are read and written.
  double host_update_bytes(int64_t record) const {
    const int64_t trained = w_.record(record).trained;
    return trained > 0
               ? as_double(w_.rounded_bytes(record)) + 2 * as_double(w_.visiting_bytes(record)) / as_double(trained)
               : 0;
  }

  const Workload& w_;
  const Plan& plan_;
  const MachineProfile& m_;
};

// The actions with their costs, and with resources replaced by indices. This form is walked several times.
class Walk {
 public:
  Walk(const std::vector<Action>& actions, const ActionCosts& costs, bool serial) : serial_(serial) {
    std::array<int64_t, kResourceKinds> most_a{}, most_b{}, base{};
    for (const Action& action : actions) {
      for (const Access& access : action.accesses) {
        const size_t kind = static_cast<size_t>(access.resource.kind);
        most_a[kind] = std::max(most_a[kind], access.resource.a + 1);
        most_b[kind] = std::max(most_b[kind], access.resource.b + 1);
      }
    }
    int64_t resources = 0;
    for (size_t kind = 0; kind < base.size(); ++kind) {
      base[kind] = resources;
      resources += most_a[kind] * most_b[kind];
    }
    for (const Action& action : actions) {
      for (const Access& access : action.accesses) {
        const size_t kind = static_cast<size_t>(access.resource.kind);
        touches_.push_back(
            {static_cast<int32_t>(base[kind] + access.resource.a * most_b[kind] + access.resource.b), access.write});
      }
      steps_.push_back({action.lane, costs(action), touches_.size()});
      if (action.kind == ActionKind::report) report_ = steps_.size() - 1;
    }
    written_.assign(static_cast<size_t>(resources), 0);
    read_.assign(static_cast<size_t>(resources), 0);
  }

  // From now on, every action on this lane takes `factor` times as long.
  void slow(Lane lane, double factor) {
    for (Step& step : steps_) step.seconds *= step.lane == lane ? factor : 1;
  }

  // Walks the next step. Returns the busy seconds of its lanes. Its step_s is how much later its compute lane ends than
  // that of the previous step.
  Estimate step() {
    const double before = free_[static_cast<size_t>(Lane::compute)];
    std::array<double, kLanes> busy{};
    size_t at = 0;
    const double issued = reported_;  // the host issues a step after it receives the previous step's report
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& s = steps_[i];
      const size_t lane = static_cast<size_t>(s.lane);
      double start = std::max(serial_ ? last_ : free_[lane], issued);
      // All copies in one direction share one device queue in the order of issue, whatever their streams.
      if (s.lane == Lane::h2d) start = std::max(start, free_[static_cast<size_t>(Lane::visit_in)]);
      const size_t first = at;
      for (; at < s.end; ++at) {
        const Touch& touch = touches_[at];
        start = std::max(start, written_[static_cast<size_t>(touch.resource)]);
        if (touch.write) start = std::max(start, read_[static_cast<size_t>(touch.resource)]);
      }
      last_ = free_[lane] = start + s.seconds;
      busy[lane] += s.seconds;
      for (size_t k = first; k < at; ++k) {
        double& until = (touches_[k].write ? written_ : read_)[static_cast<size_t>(touches_[k].resource)];
        until = std::max(until, last_);
      }
      if (i == report_) reported_ = last_;
    }
    return {.step_s = free_[static_cast<size_t>(Lane::compute)] - before,
            .compute_s = busy[static_cast<size_t>(Lane::compute)],
            .h2d_s = busy[static_cast<size_t>(Lane::h2d)] + busy[static_cast<size_t>(Lane::visit_in)],
            .d2h_s = busy[static_cast<size_t>(Lane::d2h)] + busy[static_cast<size_t>(Lane::collect)],
            .update_s = busy[static_cast<size_t>(Lane::update)],
            .disk_read_s = busy[static_cast<size_t>(Lane::disk_read)],
            .disk_write_s = busy[static_cast<size_t>(Lane::disk_write)]};
  }

 private:
  struct Touch {
    int32_t resource;
    bool write;
  };
  struct Step {
    Lane lane;
    double seconds;
    size_t end;  // of its touches
  };
  bool serial_;
  std::vector<Step> steps_;
  std::vector<Touch> touches_;
  std::vector<double> written_, read_;  // (resources) when the last write and the last read end
  std::array<double, kLanes> free_{};   // when each lane becomes free
  double last_ = 0, reported_ = 0;      // the end of the last action, and of the last report
  size_t report_ = 0;
};

}  // namespace

double least_seconds(const Workload& w, const Plan& plan, const MachineProfile& m) {
  const ActionCosts costs(w, plan, m);
  const int64_t first_trained = w.first_trained_phase(), sweeps = static_cast<int64_t>(plan.sweeps.size());
  double compute = costs({.kind = ActionKind::head, .phase = w.head_phase(), .micro_batches = w.micro_batches});
  for (int64_t phase = 1; phase < w.head_phase(); ++phase) {
    Action action{.phase = phase, .micro_batches = w.micro_batches};
    if (phase >= first_trained) action.keep = plan.phase(phase).keep;
    const auto all_parts = [&](ActionKind kind) {
      double seconds = 0;
      action.kind = kind;
      for (action.part = 0; action.part < w.phase(phase).part_count(); ++action.part) seconds += costs(action);
      return seconds;
    };
    compute += all_parts(ActionKind::forward);
    if (phase < first_trained) continue;
    compute += all_parts(ActionKind::backward);
    if (w.phase(phase).in_parts()) {
      action.kind = ActionKind::recompute;
      compute += costs(action);
    }
    action.repeated = phase + 1 < w.head_phase() && plan.above_boundary(phase + 1, first_trained) > 0;
    if (action.repeated) compute += all_parts(ActionKind::forward);
  }
  double update = 0, disk_read = 0, disk_write = 0;
  const SlotRings slots(w);
  int64_t fetched = 0, streamed = 0;  // bytes
  std::array<int64_t, 2> largest{};   // per ring
  for (int64_t record = 0; record < w.record_count(); ++record) {
    if (w.is_trained(record)) {
      compute += costs({.kind = ActionKind::finish_gradient, .record = record});
      const bool here = plan.updated_on_device(record);
      (here ? compute : update) +=
          costs({.kind = here ? ActionKind::update_on_device : ActionKind::update, .record = record});
    }
    if (plan.moments_on_disk(record)) {
      disk_read += costs({.kind = ActionKind::fetch_moments, .record = record});
      disk_write += costs({.kind = ActionKind::return_moments, .record = record});
    }
    if (plan.gradient_on_disk(record)) {
      disk_read += costs({.kind = ActionKind::fetch_gradient, .record = record});
      disk_write += costs({.kind = ActionKind::store_gradient, .record = record});
    }
    const int64_t bytes = w.stored_bytes(record);
    if (!w.is_layer_record(record)) continue;
    if (plan.copied(record)) fetched += bytes;
    if (!plan.streams(record)) continue;
    streamed += bytes;
    largest[slots.is_small(record)] = std::max(largest[slots.is_small(record)], bytes);
  }
  // once per sweep in forward; in backward and the next forward, the records used last are still in their slots
  const int64_t held = plan.rings.weight_slots * largest[0] + plan.rings.small_slots * largest[1];
  const int64_t kept = std::min(held, streamed), above = first_trained <= 1 ? streamed : 0;
  fetched += sweeps * streamed + std::max<int64_t>(sweeps * above - (2 * sweeps - 1) * kept, -(sweeps - 1) * kept);
  return std::max({compute, update, disk_read, disk_write, as_double(fetched) / m.h2d_bytes_per_s});
}

std::string bounding_lane(double step_s, double compute_s, const std::map<std::string, double>& others) {
  const auto busiest =
      std::max_element(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const double stalled = step_s - compute_s;
  return stalled < 0.05 * step_s || busiest->second < stalled / 2 ? "compute" : busiest->first;
}

int64_t fetched_weight_bytes(const Workload& w, const Plan& plan) {
  int64_t bytes = 0;
  for (const Action& action : grouped_actions(w, plan, 1)) {
    if (action.kind == ActionKind::fetch_weights) bytes += w.stored_bytes(action.record);
  }
  return bytes;
}

StepParts step_parts(const Workload& w, const Plan& plan, const MachineProfile& m) {
  const ActionCosts costs(w, plan, m);
  StepParts parts;
  bool forward = true;  // a forward pass ends before the head
  for (const Action& a : grouped_actions(w, plan, 1)) {
    const double seconds = costs(a);
    switch (a.kind) {
      case ActionKind::forward:
        forward = forward || !a.repeated;
        (a.repeated ? parts.backward_s : parts.forward_s) += seconds;
        break;
      case ActionKind::head: forward = false; [[fallthrough]];
      case ActionKind::recompute:
      case ActionKind::backward: parts.backward_s += seconds; break;
      case ActionKind::fetch_weights:
        if (forward && w.is_layer_record(a.record)) parts.weights_s += seconds;
        break;
      case ActionKind::offload_gradient:
        if (!w.by_rows(a.record)) parts.gradients_s += seconds;
        break;
      case ActionKind::collect_gradient: parts.collected_s += seconds; break;
      case ActionKind::update:
        if (!w.by_rows(a.record)) parts.update_s += seconds;
        break;
      default: break;
    }
  }
  return parts;
}

double attention_flops(const Workload& w, const Plan& plan) {
  double sum = 0;
  for (const Action& a : grouped_actions(w, plan, 1)) {
    const bool layers =
        a.kind == ActionKind::forward || a.kind == ActionKind::recompute || a.kind == ActionKind::backward;
    if (!layers || a.part != 0) continue;  // counted with the first part
    const PhaseWork& phase = w.phase(a.phase);
    const AttentionFlops& attention = phase.attention;
    const KeepWork& level = phase.level(a.keep);
    double flops = 0;
    if (a.kind == ActionKind::forward) {
      flops = attention.forward - (a.repeated ? level.spared_attention : 0);
    } else {
      if (a.kind == ActionKind::backward) flops = attention.backward;
      if (a.kind == ActionKind::recompute || !phase.in_parts()) flops += level.recomputed_attention;
    }
    sum += flops * as_double(a.micro_batches * w.micro_tokens);
  }
  return sum;
}

namespace {

// Whether any phase's input or kept output crosses the link, one micro-batch at a time.
bool activations_move(const Workload& w, const Plan& plan) {
  for (int64_t phase = std::max<int64_t>(1, w.first_trained_phase()); phase < w.head_phase(); ++phase) {
    if (plan.phase(phase).input != Tier::hbm || plan.phase(phase).outputs != Tier::hbm) return true;
  }
  return false;
}

// A lower bound on the step time if both directions of the link share its bandwidth.
double shared_link_seconds(const Estimate& e, const MachineProfile& m) {
  if (m.link_both_bytes_per_s == 0) return 0;
  return (e.h2d_s * m.h2d_bytes_per_s + e.d2h_s * m.d2h_bytes_per_s) / m.link_both_bytes_per_s;
}

double longest_lane(const Estimate& e) {
  return std::max({e.compute_s, e.h2d_s, e.d2h_s, e.update_s, e.disk_read_s, e.disk_write_s});
}

// The average share of the link's two-way bandwidth that copies use.
double link_share(const Estimate& e, const MachineProfile& m) {
  const double both_s = m.link_both_bytes_per_s > 0 ? shared_link_seconds(e, m) : (e.h2d_s + e.d2h_s) / 2;
  return std::min(1.0, both_s / std::max(e.step_s, longest_lane(e)));
}

// A lower bound on the step time if the lanes share cores: compute and the update use all of them, a copy uses one.
double shared_core_seconds(const Estimate& e, const MachineProfile& m) {
  if (m.shared_cores == 0) return 0;
  return e.compute_s + e.update_s + (e.h2d_s + e.d2h_s) / as_double(m.shared_cores);
}

// Sweeps are alike, so the time of many is extrapolated from a few.
Estimate of_many_sweeps(const Workload& w, const Plan& plan, const MachineProfile& m, size_t walked) {
  const auto first = [&](size_t sweeps) {
    Workload some = w;
    Plan shorter = plan;
    shorter.sweeps.resize(sweeps);
    some.micro_batches = std::accumulate(shorter.sweeps.begin(), shorter.sweeps.end(), int64_t{0});
    return std::pair{estimate(some, shorter, m), as_double(some.micro_batches)};
  };
  const auto [fewer, fewer_batches] = first(walked / 2);
  auto [e, batches] = first(walked);
  const double more = (as_double(w.micro_batches) - batches) / (batches - fewer_batches);
  for (double Estimate::*seconds : {&Estimate::step_s, &Estimate::compute_s, &Estimate::h2d_s, &Estimate::d2h_s,
                                    &Estimate::update_s, &Estimate::disk_read_s, &Estimate::disk_write_s})
    e.*seconds += more * (e.*seconds - fewer.*seconds);
  e.step_s = std::max(e.step_s, longest_lane(e));
  return e;
}

}  // namespace

Estimate estimate(const Workload& w, const Plan& plan, const MachineProfile& m) {
  constexpr size_t kMostSweeps = 64;
  constexpr int64_t kMostGroups = 128;
  if (plan.sweeps.size() > kMostSweeps) return of_many_sweeps(w, plan, m, kMostSweeps);
  return estimate(w, plan, m, activations_move(w, plan) ? std::min(w.micro_batches, kMostGroups) : 1);
}

Estimate estimate(const Workload& w, const Plan& plan, const MachineProfile& m, int64_t groups) {
  const ActionCosts costs(w, plan, m);
  Walk walk(grouped_actions(w, plan, groups), costs, plan.serial);
  const Estimate alone = walk.step();
  const bool turns = plan.rings.visit_slots > 0;  // then copies fill the link while the host updates
  if (!plan.serial) walk.slow(Lane::update, costs.slower_update(turns ? 1 : link_share(alone, m)));
  if (turns) walk.slow(Lane::visit_in, kBesideUpdates);
  walk.step();
  Estimate e = walk.step();
  e.step_s = std::max({e.step_s, longest_lane(e),  // no lane can run ahead indefinitely
                       shared_link_seconds(e, m), shared_core_seconds(e, m)}) *
             (turns ? kTurns : 1);
  e.bound_by = bounding_lane(e.step_s, e.compute_s,
                             {{"h2d", e.h2d_s},
                              {"d2h", e.d2h_s},
                              {"update", e.update_s},
                              {"disk_read", e.disk_read_s},
                              {"disk_write", e.disk_write_s}});
  return e;
}

}  // namespace megatrain
