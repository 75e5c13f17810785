#include "megatrain/plan/order.h"

#include <algorithm>

#include "megatrain/base/error.h"

namespace megatrain {

namespace {

struct Candidate {
  int64_t occurrence;
  ResourceKind resource;
};

// Keeps the latest conflicting occurrence of each lane, then drops those implied by the others.
std::vector<Candidate> fewest(const std::vector<Candidate>& conflicts, const std::vector<Occurrence>& all,
                              const LaneClock& known) {
  std::array<const Candidate*, kLanes> latest{};
  for (const Candidate& c : conflicts) {
    const Occurrence& o = all[static_cast<size_t>(c.occurrence)];
    const Candidate*& best = latest[static_cast<size_t>(o.lane)];
    if (known.done[static_cast<size_t>(o.lane)] >= o.sequence) continue;
    if (!best || o.sequence > all[static_cast<size_t>(best->occurrence)].sequence) best = &c;
  }
  std::vector<Candidate> kept;
  for (int lane = 0; lane < kLanes; ++lane) {
    const Candidate* candidate = latest[static_cast<size_t>(lane)];
    if (!candidate) continue;
    const Occurrence& o = all[static_cast<size_t>(candidate->occurrence)];
    const bool implied = std::any_of(latest.begin(), latest.end(), [&](const Candidate* other) {
      return other && other != candidate && all[static_cast<size_t>(other->occurrence)].knows(o);
    });
    if (!implied) kept.push_back(*candidate);
  }
  return kept;
}

}  // namespace

void derive_waits(std::vector<Action>& actions, bool serial) {
  constexpr int64_t kSteps = 3;  // the second step is the steady state; the third must repeat it
  std::vector<Occurrence> all;
  std::map<Resource, History> histories;
  std::array<int64_t, kLanes> count{};
  std::array<LaneClock, kLanes> lane_clock{};
  std::vector<std::vector<Wait>> steady(actions.size());

  for (int64_t step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < actions.size(); ++i) {
      const Action& action = actions[i];
      const size_t lane = static_cast<size_t>(action.lane);
      LaneClock known = lane_clock[lane];
      std::vector<Candidate> conflicts;
      for (const Access& access : action.accesses) {
        const History& h = histories[in_step(access.resource, step)];
        if (h.writer >= 0) conflicts.push_back({h.writer, access.resource.kind});
        if (access.write) {
          for (const int64_t reader : h.readers) conflicts.push_back({reader, access.resource.kind});
        }
      }
      if (serial && !all.empty())
        conflicts.push_back({static_cast<int64_t>(all.size()) - 1, action.accesses.front().resource.kind});

      std::vector<Wait> waits;
      for (const Candidate& c : fewest(conflicts, all, known)) {
        const Occurrence& o = all[static_cast<size_t>(c.occurrence)];
        waits.push_back({o.action, step - o.step, {c.resource, o.lane, action.lane}});
        known.join(o.clock);
      }
      std::sort(waits.begin(), waits.end());
      if (step == 1) steady[i] = waits;
      if (step == 2)
        ensure(steady[i] == waits, "a step's waits repeat from step to step and reach at most one step back");

      Occurrence self{step, static_cast<int64_t>(i), action.lane, ++count[lane], known};
      self.clock.done[lane] = self.sequence;
      lane_clock[lane] = self.clock;
      const int64_t index = static_cast<int64_t>(all.size());
      all.push_back(self);
      for (const Access& access : action.accesses) histories[in_step(access.resource, step)].note(index, access.write);
    }
  }
  for (size_t i = 0; i < actions.size(); ++i) actions[i].waits = std::move(steady[i]);
  for (const Action& action : actions) {
    for (const Wait& wait : action.waits) ensure(wait.steps_back <= 1, "a wait reaches at most one step back");
  }
}

}  // namespace megatrain
