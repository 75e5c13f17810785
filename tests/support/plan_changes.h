// Changes to a plan that several tests make. They leave it valid unless they say otherwise.
#pragma once

#include <string>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

// All state lives on the host, is updated there, and streams.
inline void live_on_host(const Workload& w, Plan& plan) {
  for (RecordPlan& record : plan.records) record = {};
  Rings& rings = plan.rings;
  rings.visit_slots = rings.moment_slabs = rings.weight_slabs = rings.gradient_slabs = 0;
  rings.host_gradients = plan.leaving(w);
}

inline void live_on_device(const Workload& w, Plan& plan) {
  live_on_host(w, plan);
  for (RecordPlan& record : plan.records) record.live_on_device();
  plan.rings.host_gradients = 0;
}

// Visiting records are updated on the host instead. Their moments stay there, and so do gradients that wait nowhere
// else.
inline void end_visits(const Workload& w, Plan& plan) {
  for (int64_t r = 0; r < w.record_count(); ++r) {
    if (plan.visiting(r)) plan.record(r).updated_by = UpdatedBy::host;
  }
  plan.rings.visit_slots = 0;
  if (w.clip) plan.rings.host_gradients = plan.waiting_on_host(w);
}

// Moments and weights on disk move to the host.
inline void leave_the_disk(Plan& plan) {
  for (RecordPlan& record : plan.records) {
    if (record.state == Tier::disk) record.state = Tier::host;
    if (record.moments == Tier::disk) record.moments = Tier::host;
  }
  plan.rings.moment_slabs = plan.rings.weight_slabs = 0;
}

// The level with this name.
template <class Level>
Keep level_named(const std::vector<Level>& levels, const std::string& name) {
  for (size_t at = 0; at < levels.size(); ++at) {
    if (levels[at].name == name) return Keep{static_cast<int32_t>(at)};
  }
  fail_internal("no level is named " + name);
}
inline Keep level_named(const Workload& w, int64_t phase, const std::string& name) {
  return level_named(w.phase(phase).levels, name);
}

// The caller sets the rings for kept outputs and for the disk.
inline void keep(const Workload& w, Plan& plan, const std::string& level) {
  for (int64_t p = 1; p < w.head_phase(); ++p) {
    plan.phase(p).keep = level_named(w, p, level);
    if (!w.phase(p).level(plan.phase(p).keep).may_wait) plan.phase(p).outputs = Tier::hbm;
  }
}
inline void inputs_wait(Plan& plan, Tier tier) {
  for (PhasePlan& phase : plan.layer_phases()) phase.input = tier;
}
inline void outputs_wait(Plan& plan, Tier tier) {
  for (PhasePlan& phase : plan.layer_phases()) phase.outputs = tier;
}

// The number of blocks that keep this level.
inline int64_t keeping(const Workload& w, const Plan& plan, const std::string& level) {
  int64_t blocks = 0;
  for (int64_t p = 1; p < w.head_phase(); ++p) blocks += w.phase(p).level(plan.phase(p).keep).name == level;
  return blocks;
}

}  // namespace megatrain
