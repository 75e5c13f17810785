// Drops each kind of wait in turn from the schedules of random plans, and reports which check then fails, and how.
// Exits non-zero if a kind of wait can be dropped unnoticed. Run by `./test --waits`.
#include <cstdio>
#include <map>

#include <fmt/format.h>

#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/verify.h"
#include "tests/pipeline/tiny.h"

int main() {
  using namespace megatrain;
  std::map<WaitKind, std::pair<std::string, int>> found;  // what broke, in how many schedules
  std::map<WaitKind, int> unnoticed;
  for (const bool tied : {false, true}) {
    for (const bool clip : {true, false}) {
      tiny::Tiny model({.tied = tied, .clip = clip});
      for (uint64_t seed = 0; seed < 40; ++seed) {
        const Plan plan = random_plan(model.workload(), seed);
        if (plan.serial) continue;
        const Schedule schedule = build_schedule(model.workload(), plan, StepMode::train);
        for (const WaitKind& kind : wait_kinds(schedule)) {
          const auto violations = verify(without_waits(schedule, kind), 1);
          if (violations.empty()) {
            ++unnoticed[kind];
          } else {
            found.try_emplace(kind, violations.front(), 0).first->second.second++;
          }
        }
      }
    }
  }
  for (const auto& [kind, failure] : found) {
    fmt::print("without \"{}\": Schedule.VerifierFindsNoUnorderedPairInAnyRandomPlan fails ({} schedules): {}\n",
               wait_kind_name(kind), failure.second, failure.first);
  }
  for (const auto& [kind, count] : unnoticed)
    fmt::print("NOT NOTICED: \"{}\" dropped from {} schedules\n", wait_kind_name(kind), count);
  fmt::print("{} kinds of wait, {} that no test needs\n", found.size() + unnoticed.size(), unnoticed.size());
  return unnoticed.empty() ? 0 : 1;
}
