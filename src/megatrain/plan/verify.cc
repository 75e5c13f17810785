#include "megatrain/plan/verify.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "megatrain/plan/order.h"

namespace megatrain {

namespace {

std::string describe(const Action& action, const Occurrence& at) {
  std::string text = fmt::format("{}", action_name(action.kind));
  if (action.record >= 0) text += fmt::format(" of record {}", action.record);
  if (action.micro_batch >= 0) text += fmt::format(", micro-batch {}", action.micro_batch);
  return text + fmt::format(" (step {}, lane {})", at.step, lane_name(action.lane));
}

}  // namespace

std::vector<std::string> verify(const Schedule& schedule, size_t limit) {
  constexpr int64_t kSteps = 3;
  const std::vector<Action>& actions = schedule.actions;
  std::vector<Occurrence> all;
  std::array<int64_t, kLanes> count{};
  std::array<int64_t, kLanes> last{};
  last.fill(-1);
  std::map<Resource, History> histories;
  std::vector<std::string> violations;
  const int64_t per_step = static_cast<int64_t>(actions.size());

  for (int64_t step = 0; step < kSteps && violations.size() < limit; ++step) {
    for (int64_t i = 0; i < per_step && violations.size() < limit; ++i) {
      const Action& action = actions[static_cast<size_t>(i)];
      const size_t lane = static_cast<size_t>(action.lane);
      Occurrence self{step, i, action.lane, ++count[lane], {}};
      if (last[lane] >= 0) self.clock.join(all[static_cast<size_t>(last[lane])].clock);
      for (const Wait& wait : action.waits) {
        const int64_t target = (step - wait.steps_back) * per_step + wait.action;
        if (target < 0) continue;  // before the first step there is nothing to wait for
        if (target >= static_cast<int64_t>(all.size())) {
          violations.push_back(fmt::format("{} waits for an action that comes after it", describe(action, self)));
          continue;
        }
        self.clock.join(all[static_cast<size_t>(target)].clock);
      }
      self.clock.done[lane] = self.sequence;
      const auto check = [&](int64_t earlier, const Resource& resource) {
        if (earlier < 0) return;
        const Occurrence& other = all[static_cast<size_t>(earlier)];
        if (self.knows(other)) return;
        violations.push_back(fmt::format("{} and {} touch {} [{}, {}] with nothing between them",
                                         describe(actions[static_cast<size_t>(other.action)], other),
                                         describe(action, self), resource_name(resource.kind), resource.a, resource.b));
      };
      for (const Access& access : action.accesses) {
        const History& h = histories[in_step(access.resource, step)];
        check(h.writer, access.resource);
        if (access.write) {
          for (const int64_t reader : h.readers) check(reader, access.resource);
        }
      }
      const int64_t index = static_cast<int64_t>(all.size());
      all.push_back(self);
      last[lane] = index;
      for (const Access& access : action.accesses) histories[in_step(access.resource, step)].note(index, access.write);
    }
  }
  return violations;
}

std::vector<WaitKind> wait_kinds(const Schedule& schedule) {
  std::set<WaitKind> kinds;
  for (const Action& action : schedule.actions) {
    for (const Wait& wait : action.waits) kinds.insert(wait.kind);
  }
  return {kinds.begin(), kinds.end()};
}

Schedule without_waits(const Schedule& schedule, const WaitKind& kind) {
  Schedule fewer = schedule;
  for (Action& action : fewer.actions) {
    std::erase_if(action.waits, [&](const Wait& wait) { return wait.kind == kind; });
  }
  return fewer;
}

}  // namespace megatrain
