// Plans to test with: every valid one gives the same bits.
#pragma once

#include <cstdint>

#include "megatrain/plan/plan.h"

namespace megatrain {

// Some valid plan: varies everything a plan may vary.
Plan random_plan(const Workload& workload, uint64_t seed);

}  // namespace megatrain
