// The least memory with which the planner finds a plan.
#pragma once

#include <cstdint>

#include <gtest/gtest.h>

#include "megatrain/base/error.h"
#include "megatrain/plan/planner.h"

namespace megatrain {

inline bool is_planned(const Workload& w, const Budgets& budgets, const MachineProfile& machine) {
  try {
    make_plan(w, budgets, machine, nullptr);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::cannot_fit);
    return false;
  }
}

// The least size up to `enough`, to within `step` bytes, for which there is a plan within budgets(size). The search
// uses can_fit(), which is far faster; make_plan() confirms the result.
template <class BudgetsOf>
int64_t least_budget(const Workload& w, const MachineProfile& machine, int64_t enough, const BudgetsOf& budgets,
                     int64_t step = 1) {
  int64_t low = 0, high = enough;
  while (high - low > step) {
    const int64_t middle = low + (high - low) / 2;
    (can_fit(w, budgets(middle), machine) ? high : low) = middle;
  }
  EXPECT_TRUE(is_planned(w, budgets(high), machine));
  EXPECT_FALSE(is_planned(w, budgets(low), machine));
  return high;
}

}  // namespace megatrain
