// Searches for the plan with the shortest step: climbs ladders of memory use from many starts, and compares the results
// by their estimates.
#include "megatrain/plan/planner.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/seen_plans.h"
#include "megatrain/plan/slot_rings.h"
#include "megatrain/plan/spill.h"

namespace megatrain {

namespace {

// A starting point of the search. From there, the ladders add everything else that memory allows.
struct Start {
  int64_t sweeps;
  // Records whose state is on the device: trained ones first, and within each group the ones needed first.
  int64_t state;
  int64_t visits;     // trained blocks whose state visits the device: the ones needed first
  int64_t weights;    // further blocks with device memory of their own
  int64_t keeping;    // blocks that keep all but the last level: the ones needed first in backward
  int64_t every = 1;  // Plan::input_every
  // Gradients of blocks that the host updates wait on the device, in the memory of the inputs.
  bool gradients = false;
  int64_t turns = 0;    // of every eight trained blocks this many visit, evenly spread, and take turns
  int64_t outputs = 0;  // blocks whose kept outputs wait in host memory: the ones needed last in backward
};

// The last level only saves recomputing norms and activation functions, which are memory-bound.
Keep all_but_last(const PhaseWork& phase) {
  return Keep{static_cast<int32_t>(std::max<int64_t>(0, std::ssize(phase.levels) - 2))};
}

// The level that is `levels` above the highest one that may wait off the device; at most the last.
Keep above_waiting(const PhaseWork& phase, int64_t levels) {
  return std::min(phase.everything(), Keep{static_cast<int32_t>(phase.waiting_level()) + static_cast<int32_t>(levels)});
}

void leave_gradients_on_device(const Workload& w, Plan& plan) {
  constexpr int64_t kRing = 3;
  for (PhasePlan& phase : plan.layer_phases()) phase.input = Tier::hbm;
  for (const int64_t record : w.layer_records()) {
    if (w.is_trained(record) && !plan.updated_on_device(record) && leaves_its_place(w, plan, record))
      plan.record(record).gradient = Tier::hbm;
  }
  plan.rings.gradient_slabs = std::min(kRing, plan.waiting_elsewhere());
}

// Spreads the visiting blocks evenly, so that the host can update the others in the meantime.
void take_turns(const Workload& w, int64_t of_eight, Plan& plan) {
  constexpr int64_t kSlots = 3;
  int64_t seen = 0, largest = 0, visitors = 0;
  for (const int64_t record : w.layer_records()) {
    if (!w.is_trained(record) || plan.state_on_device(record)) continue;
    const bool visits = (seen + 1) * of_eight / 8 > seen * of_eight / 8;
    ++seen;
    if (!visits) continue;
    plan.record(record).updated_by = UpdatedBy::device;
    largest = std::max(largest, w.visiting_bytes(record));
    ++visitors;
  }
  if (visitors > 0)
    plan.rings.visit_slots =
        std::min(visitors, std::clamp<int64_t>(kVisitingBytes / std::max<int64_t>(largest, 1), 2, kSlots));
}

Plan start_plan(const Workload& w, const SlotRings& slots, const Start& start) {
  Plan plan{.experts_per_record = w.experts_per_record,
            .records = std::vector<RecordPlan>(w.records.size()),
            .phases = std::vector<PhasePlan>(w.phases.size()),
            .rings = {.gradients_out = 1},
            .sweeps = {}};
  slots.set(1, plan.rings);
  for (PhasePlan& phase : plan.layer_phases()) phase.input = Tier::host;
  for (int64_t i = 0; i < start.sweeps; ++i)
    plan.sweeps.push_back((w.micro_batches + start.sweeps - 1 - i) / start.sweeps);  // the widest first
  int64_t state = start.state, visits = start.visits, weights = start.weights;
  for (const bool trained : {true, false}) {
    for (int64_t record = 0; record < w.record_count() && state > 0; ++record) {
      if (w.is_trained(record) != trained) continue;
      plan.record(record).live_on_device();
      --state;
    }
  }
  for (const int64_t record : w.layer_records()) {
    RecordPlan& layer = plan.record(record);
    if (plan.state_on_device(record) || weights-- > 0) layer.weights = Tier::hbm;
    if (w.is_trained(record) && visits-- > 0) layer.updated_by = UpdatedBy::device;
  }
  for (int64_t phase = w.head_phase() - start.keeping; phase < w.head_phase(); ++phase)
    plan.phase(phase).keep = all_but_last(w.phase(phase));
  plan.input_every = start.every;
  if (start.gradients) leave_gradients_on_device(w, plan);
  if (start.turns > 0) take_turns(w, start.turns, plan);
  const int64_t first = std::max<int64_t>(1, w.first_trained_phase());
  for (int64_t phase = first; phase < std::min(first + start.outputs, w.head_phase()); ++phase) {
    plan.phase(phase).keep = w.phase(phase).waiting_level();
    plan.phase(phase).outputs = Tier::host;
  }
  return plan;
}

// Sets the fields that follow from the rest of the plan.
void settle(const Workload& w, Plan& plan) {
  for (int64_t phase = 0; phase < w.phase_count(); ++phase) {
    if (!w.phase(phase).level(plan.phase(phase).keep).may_wait) plan.phase(phase).outputs = Tier::hbm;
  }
  plan.rings.output_slots = plan.outputs_wait_elsewhere() ? 2 : 0;
  plan.rings.packed_slots = std::min<int64_t>(2, plan.packed_and_coming(w));
  const int64_t records = plan.waiting_on_host(w);
  plan.rings.host_gradients = w.clip ? records : std::min<int64_t>(records, 4);
}

// Climbs a ladder while device memory allows. The first rung that does not fit ends the climb for good, so that more
// memory always reaches at least as far up the same ladder. No rung makes a plan slower or needs more host memory.
class Climber {
 public:
  Climber(const Workload& w, const SlotRings& slots, int64_t gpu_bytes, Plan start)
      : w_(w), slot_rings_(slots), gpu_bytes_(gpu_bytes), plan_(std::move(start)) {}

  const Plan& plan() const { return plan_; }

  // `change` makes the first `count` of `most` changes to a plan; as many as fit are made.
  template <class Change>
  void climb(int64_t most, const Change& change) {
    if (ended_) return;
    int64_t low = 0, high = most;
    Plan highest = plan_;
    while (low < high) {
      const int64_t middle = high == most ? most : (low + high + 1) / 2;  // usually everything fits
      Plan plan = plan_;
      change(plan, middle);
      settle(w_, plan);
      if (memory_need(w_, plan, slot_rings_).hbm_bytes() <= gpu_bytes_) {
        low = middle;
        highest = std::move(plan);
      } else {
        high = middle - 1;
      }
    }
    plan_ = std::move(highest);
    ended_ = low < most;
  }

  // The first rungs of every ladder: slots that let copies overlap with compute, then phase inputs that stay on the
  // device. With `outputs_first`, kept outputs come in between, since they save the most if sequences are long.
  void basics(bool outputs_first) {
    slots(2);
    climb(std::min<int64_t>(2, w_.layer_record_count()) - 1, [](Plan& p, int64_t n) { p.rings.gradients_out += n; });
    climb(1, [](Plan& p, int64_t n) { p.rings.input_slots += n; });
    if (outputs_first) outputs();
    climb(w_.layer_phases(), [](Plan& p, int64_t n) {
      for (PhasePlan& phase : p.layer_phases().last(static_cast<size_t>(n))) phase.input = Tier::hbm;
    });
    slots(3);
  }
  // Grows each ring from the slots for `phases - 1` phases at once to the slots for `phases`, the small ring first.
  void slots(int64_t phases) {
    auto rings = slot_rings_.all();
    std::ranges::reverse(rings);
    for (const SlotRing& ring : rings) {
      const auto needed = [&](int64_t n) { return std::min(n * ring.at_once, ring.records); };
      climb(needed(phases) - needed(phases - 1), [&](Plan& p, int64_t n) { p.rings.*ring.slots += n; });
    }
  }
  void weights() {
    if (w_.alias_records > 0) return;  // aliased records must stream
    const std::vector<int64_t> records = w_.layer_records();
    climb(std::ssize(records), [&](Plan& p, int64_t n) {
      for (int64_t i = 0; i < n; ++i) p.record(records[static_cast<size_t>(i)]).weights = Tier::hbm;
    });
  }
  // Keeps phases' outputs. Phases that run forward again to recompute a later input come first.
  void outputs() {
    std::vector<int64_t> order;
    for (const bool repeated : {true, false}) {
      for (int64_t phase = w_.layer_phases(); phase >= 1; --phase) {
        const bool runs_again =
            phase < w_.layer_phases() && plan_.above_boundary(phase + 1, w_.first_trained_phase()) > 0;
        if (runs_again == repeated) order.push_back(phase);
      }
    }
    climb(w_.layer_phases(), [&](Plan& p, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t phase = order[static_cast<size_t>(i)];
        p.phase(phase).keep = std::max(p.phase(phase).keep, w_.phase(phase).waiting_level());
      }
    });
  }
  // `level_of` gives the level for a phase.
  template <class LevelOf>
  void keep(const LevelOf& level_of) {
    climb(w_.layer_phases(), [&](Plan& p, int64_t n) {
      for (int64_t phase = w_.head_phase() - n; phase < w_.head_phase(); ++phase)
        p.phase(phase).keep = std::max(p.phase(phase).keep, level_of(w_.phase(phase)));
    });
  }
  // Keeps the levels above the one that may wait off the device, one at a time.
  void keep_by_level() {
    int64_t most = 0;
    for (const PhaseWork& phase : w_.phases)
      most = std::max(most, static_cast<int64_t>(phase.everything()) - static_cast<int64_t>(phase.waiting_level()));
    for (int64_t levels = 1; levels <= most; ++levels)
      keep([levels](const PhaseWork& phase) { return above_waiting(phase, levels); });
  }

 private:
  const Workload& w_;
  const SlotRings& slot_rings_;
  int64_t gpu_bytes_;
  Plan plan_;
  bool ended_ = false;
};

// keep_most: keeps nearly everything of one block before the next block. keep_by_level: keeps one level in every block
// before the next level.
enum class Ladder : uint8_t { keep_most, keep_by_level, weights };

// Whether a kept byte of the level that may wait off the device saves more recomputation than a byte of the level above
// it. It does with long sequences.
bool outputs_pay_most(const Workload& w) {
  const auto saved = [](const PhaseWork& phase, Keep keep) {
    const KeepWork& level = phase.level(keep);
    return (phase.levels.front().recomputed_flops - level.recomputed_flops) /
           static_cast<double>(std::max<int64_t>(level.bytes, 1));
  };
  return std::any_of(w.phases.begin(), w.phases.end(), [&](const PhaseWork& phase) {
    return saved(phase, phase.waiting_level()) > saved(phase, above_waiting(phase, 1));
  });
}

void climb(Climber& climber, Ladder ladder) {
  if (ladder == Ladder::weights) climber.weights();
  if (ladder != Ladder::keep_by_level) climber.keep(all_but_last);
  climber.keep_by_level();
  climber.weights();
}

// The plans at the top of the ladders that begin at `base`, the plan of `start`.
std::vector<Plan> climbed(const Workload& w, const SlotRings& slots, int64_t gpu_bytes, const Start& start,
                          const Plan& base, bool long_sequences) {
  const auto basics = [&](bool outputs_first) {
    Climber climber(w, slots, gpu_bytes, base);
    climber.basics(outputs_first);
    if (long_sequences) climber.outputs();
    return climber;
  };
  const Climber common = basics(false);
  std::vector<Plan> plans;
  for (const Ladder ladder : {Ladder::keep_most, Ladder::keep_by_level, Ladder::weights}) {
    // skip ladders whose first rungs the start has already taken: they equal another ladder
    if (ladder == Ladder::weights && base.streaming(w) == 0) continue;
    if (ladder == Ladder::keep_by_level && start.keeping == w.layer_phases()) continue;
    Climber climber = long_sequences && ladder == Ladder::keep_by_level ? basics(true) : common;
    climb(climber, ladder);
    plans.push_back(climber.plan());
  }
  return plans;
}

// 0, ..., most in about `parts` steps. It depends only on the workload, so a larger budget searches everything that a
// smaller one does.
std::vector<int64_t> grid(int64_t most, int64_t parts) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i <= parts; ++i) {
    const int64_t value = most * i / parts;
    if (values.empty() || values.back() != value) values.push_back(value);
  }
  return values;
}

// How many of the first trained layer records have at most kVisitingBytes of state together.
int64_t most_visitors(const Workload& w) {
  int64_t count = 0, bytes = 0;
  for (const int64_t record : w.layer_records()) {
    if (!w.is_trained(record)) continue;
    bytes += w.visiting_bytes(record);
    if (bytes > kVisitingBytes) break;
    ++count;
  }
  return count;
}

// Starts with kept outputs in host memory. Each needs more memory than one of starts(), so they never decide whether a
// plan fits.
std::vector<Start> output_starts(const Workload& w, bool state_on_host) {
  std::vector<Start> list;
  std::vector<int64_t> sweeps = {1};
  if (w.micro_batches > 1 && w.aux_loss == 0) sweeps.push_back(w.micro_batches);
  const int64_t blocks = w.head_phase() - std::max<int64_t>(1, w.first_trained_phase());  // with a backward
  for (const int64_t n : sweeps) {
    for (const int64_t state : grid(state_on_host ? 0 : w.record_count(), 6)) {
      for (const int64_t every : {1, 2, 4, 8}) {
        if (every > w.layer_phases()) break;
        for (const int64_t outputs : grid(blocks, 8)) {
          if (outputs > 0) list.push_back({.sweeps = n, .state = state, .every = every, .outputs = outputs});
        }
      }
    }
  }
  return list;
}

std::vector<Start> starts(const Workload& w, bool state_on_host, bool visits) {
  std::vector<Start> list;
  std::vector<int64_t> sweeps;
  const int64_t most_sweeps = w.aux_loss > 0 ? 1 : w.micro_batches;
  for (int64_t n = 1; n < most_sweeps; n *= 2) sweeps.push_back(n);
  sweeps.push_back(most_sweeps);
  std::vector<std::pair<int64_t, int64_t>> state_and_visits;
  for (const int64_t state : grid(state_on_host ? 0 : w.record_count(), 12)) state_and_visits.emplace_back(state, 0);
  const int64_t most = visits && w.clip ? most_visitors(w) : 0;
  for (const int64_t visiting : grid(most, 3)) {
    if (visiting > 0) state_and_visits.emplace_back(0, visiting);
  }
  for (const int64_t n : sweeps) {
    for (const auto& [state, visiting] : state_and_visits) {
      const int64_t others = std::min(w.layer_record_count(), w.record_count() - state);
      for (const int64_t weights : grid(w.alias_records > 0 ? 0 : others, 1)) {
        for (const int64_t keeping : grid(w.layer_phases(), 4)) list.push_back({n, state, visiting, weights, keeping});
        for (const int64_t every : {2, 4, 8}) {
          if (every <= w.layer_phases()) list.push_back({n, state, visiting, weights, 0, every});
        }
      }
    }
  }
  constexpr int64_t kEvery = 100;  // with up to this many records (any dense model), every count is tried
  // when memory is short, every record counts
  for (const int64_t state : grid(state_on_host ? 0 : w.record_count() - 1, kEvery)) {
    if (state == 0) continue;
    for (const int64_t n : {int64_t{1}, std::min<int64_t>(2, most_sweeps)}) {
      for (const int64_t every :
           {int64_t{1}, std::min<int64_t>(4, w.layer_phases()), std::min<int64_t>(8, w.layer_phases())})
        list.push_back({n, state, 0, 0, 0, every});
    }
  }
  // if the host's updates take longer than a step's compute, the device takes over some of them
  for (const int64_t state : grid(state_on_host ? 0 : w.record_count(), 6)) {
    for (const int64_t turns : {2, 3, 4, 5, 6, 8}) {
      if (!visits || !w.clip || w.gradients_stay) break;
      for (const int64_t keeping : grid(w.layer_phases(), 2))
        list.push_back({1, state, 0, 0, keeping, 1, false, turns});
    }
  }
  for (const int64_t state : grid(state_on_host ? 0 : w.record_count() - 1, kEvery)) {
    if (!w.clip) break;
    for (const int64_t every : {int64_t{1}, std::min<int64_t>(4, w.layer_phases())})
      list.push_back({1, state, 0, 0, 0, every, true});
  }
  return list;
}

// Calls consider(plan) with plans that keep some gradients, moments or weights on disk.
template <class Consider>
void spill(const Workload& w, const Plan& plan, const Budgets& budgets, const Consider& consider) {
  constexpr int64_t kMostSlabs = 3;
  for (const SpillOrder order : {SpillOrder::last, SpillOrder::spread}) {
    for (int64_t slabs = 2; slabs <= kMostSlabs; ++slabs) {
      const auto consider_moments = [&](const Plan& start, SpillOrder moments) {
        auto spilled = spill_moments(w, start, budgets, slabs, moments);
        if (!spilled) spilled = spill_weights(w, start, budgets, slabs);
        if (spilled) consider(*spilled);
      };
      // with clipping all updates wait for the norm, and so do all moments
      if (w.clip) consider_moments(spill_gradients(w, plan, budgets, slabs, order), SpillOrder::last);
      if (!w.clip || order == SpillOrder::last) consider_moments(plan, order);
      if (order == SpillOrder::last) consider_moments(spill_activations(w, plan, budgets), order);
    }
  }
}

// The same for a plan whose outputs wait in host memory: spills activations, then moments if that is not enough.
template <class Consider>
void spill_outputs(const Workload& w, const Plan& plan, const Budgets& budgets, const Consider& consider) {
  const auto spilled = spill_moments(w, spill_activations(w, plan, budgets), budgets, 2, SpillOrder::last);
  if (spilled) consider(*spilled);
}

bool any_may_stay_in_files(const Workload& w) {
  return std::ranges::any_of(w.records, [](const RecordWork& r) { return r.file_bytes > 0; });
}

// Plans that leave frozen weights in the model's files, as many as host memory or the budgets ask for. The plan itself
// if none may stay there.
std::vector<Plan> with_base_in_files(const Workload& w, const Plan& plan, const Budgets& budgets) {
  constexpr int64_t kMostSlabs = 3;
  if (!any_may_stay_in_files(w)) return {plan};
  std::vector<Plan> plans;
  for (int64_t slabs = 2; slabs <= kMostSlabs; ++slabs)
    plans.push_back(budgets.base_in_files ? leave_all_in_files(w, plan, slabs)
                                          : leave_in_files(w, plan, budgets, slabs));
  return plans;
}

// Calls consider(plan) with this plan if it fits the host, and else with plans made from it that do, until it returns
// true. Calls lacks_host(plan) if none fits. Returns whether consider() returned true.
template <class Consider, class LacksHost>
bool search_host(const Workload& w, const Budgets& budgets, const SlotRings& slots, const Start& start,
                 const Plan& plan, const Consider& consider, const LacksHost& lacks_host) {
  if (memory_need(w, plan, slots).host_bytes() <= budgets.host_bytes) return consider(plan);
  Plan tight = plan;
  if (!w.clip) tight.rings.host_gradients = std::min<int64_t>(1, plan.rings.host_gradients);
  if (memory_need(w, tight, slots).host_bytes() <= budgets.host_bytes) return consider(tight);
  bool done = false;
  if (budgets.disk_bytes > 0) {
    const auto consider_spilled = [&](const Plan& spilled) { done = done || consider(spilled); };
    if (start.outputs > 0) {
      spill_outputs(w, tight, budgets, consider_spilled);
    } else {
      spill(w, plan, budgets, consider_spilled);
      if (tight != plan) spill(w, tight, budgets, consider_spilled);
    }
  }
  if (!done && start.outputs == 0) lacks_host(tight);
  return done;
}

// Calls consider(plan) with plans that fit, until it returns true. Calls lacks_device(plan, bytes) with starts that do
// not fit the device, and lacks_host(plan) with plans that do not fit the host and its disk.
template <class Consider, class LacksDevice, class LacksHost>
void search(const Workload& w, const Budgets& budgets, const MachineProfile& machine, const Consider& consider,
            const LacksDevice& lacks_device, const LacksHost& lacks_host) {
  const bool state_on_host = budgets.state_on_host || !machine.updates_on_device || w.alias_records > 0;
  const bool long_sequences = outputs_pay_most(w);
  std::vector<Start> list = starts(w, state_on_host, machine.updates_on_device);
  if (long_sequences) {
    const std::vector<Start> more = output_starts(w, state_on_host);
    list.insert(list.end(), more.begin(), more.end());
  }
  const SlotRings slots(w);
  std::array<SeenPlans, 2> seen;  // at the tops of ladders; [1]: for starts with outputs in host memory
  for (const Start& start : list) {
    Plan base = start_plan(w, slots, start);
    settle(w, base);
    const int64_t device = memory_need(w, base, slots).hbm_bytes() - budgets.gpu_bytes;
    if (device > 0) {
      lacks_device(base, device);
      continue;
    }
    for (const Plan& top : climbed(w, slots, budgets.gpu_bytes, start, base, long_sequences)) {
      if (!seen[start.outputs > 0].add(top)) continue;
      for (const Plan& plan : with_base_in_files(w, top, budgets)) {
        if (search_host(w, budgets, slots, start, plan, consider, lacks_host)) return;
      }
    }
  }
}

}  // namespace

bool can_fit(const Workload& w, const Budgets& budgets, const MachineProfile& machine) {
  bool found = false;
  search(
      w, budgets, machine, [&](const Plan&) { return found = true; }, [](const Plan&, int64_t) {}, [](const Plan&) {});
  return found;
}

namespace {

// The profile used to compare plans. A drive is often far slower under a step's load than alone: gpt-oss-20b read its
// moments at half of the measured rate, and the step took half as long again as estimated. With this profile, a plan
// that needs the drive less wins unless it is clearly slower.
MachineProfile with_busy_disk(MachineProfile machine) {
  constexpr double kUnderLoad = 0.6;
  machine.disk_read_bytes_per_s *= kUnderLoad;
  machine.disk_write_bytes_per_s *= kUnderLoad;
  machine.disk_both_bytes_per_s *= kUnderLoad;
  return machine;
}

}  // namespace

Plan make_plan(const Workload& w, const Budgets& budgets, const MachineProfile& profile,
               std::vector<std::string>* notes) {
  const MachineProfile machine = with_busy_disk(profile);
  std::optional<Plan> best;
  double best_s = 0;
  Plan nearest;
  // Device bytes that the nearest plan lacks; if it lacks none, host bytes.
  int64_t lacking = std::numeric_limits<int64_t>::max();
  bool lacks_device = true;
  std::optional<int64_t> least_disk;  // bytes with which some plan would fit
  const auto lacks = [&](const Plan& plan, int64_t bytes, bool device) {
    if (device == lacks_device ? bytes >= lacking : device) return;
    nearest = plan;
    lacking = bytes;
    lacks_device = device;
  };
  SeenPlans estimated;
  const auto consider = [&](const Plan& plan) {
    if (best && least_seconds(w, plan, machine) >= best_s * (1 - 1e-12)) return false;
    if (!estimated.add(plan)) return false;
    const double seconds = estimate(w, plan, machine).step_s;
    if (best && seconds >= best_s) return false;
    best = plan;
    best_s = seconds;
    return false;  // a later one may be faster
  };
  const auto lacks_host = [&](const Plan& plan) {
    if (best) return;
    if (const auto disk = least_disk_bytes(w, plan, budgets); disk && *disk < least_disk.value_or(*disk + 1))
      least_disk = disk;
    const Plan spilled = spill_most(w, plan, budgets);
    lacks(spilled, memory_need(w, spilled).host_bytes() - budgets.host_bytes, false);
  };
  search(
      w, budgets, machine, consider, [&](const Plan& plan, int64_t bytes) { lacks(plan, bytes, true); }, lacks_host);
  if (!best) {
    check_fit(w, nearest, budgets, least_disk);
    fail_internal("a plan that lacks memory fits");
  }
  if (notes) {
    if (best->streaming(w) > 0 && best->rings.weight_slots < std::min<int64_t>(2, w.layer_record_count()))
      notes->push_back("one weight slot: fetching a block waits for the block before it");
    if (best->leaving(w) > 0 && best->rings.gradients_out < std::min<int64_t>(2, w.layer_record_count()))
      notes->push_back("one gradient slab: a block's backward waits for the previous gradient to leave");
    const int64_t frozen = std::max<int64_t>(0, w.first_trained_phase() - 1);  // blocks without a backward
    if (std::ranges::count(best->layer_phases().subspan(static_cast<size_t>(frozen)), Tier::host, &PhasePlan::input) >
        0)
      notes->push_back("some block inputs wait in host memory");
    if (const int64_t bytes = memory_need(w, *best).disk_bytes(); bytes > 0)
      notes->push_back(fmt::format("{} of {} live on disk", format_bytes(bytes), disk_contents(memory_need(w, *best))));
    if (const int64_t bytes = memory_need(w, *best).file_bytes(); bytes > 0 && !budgets.base_in_files)
      notes->push_back(fmt::format("{} of frozen weights stay in the model's files", format_bytes(bytes)));
  }
  return *best;
}

}  // namespace megatrain
