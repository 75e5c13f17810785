// Random plans for tests: every valid one must give the same bits.
#pragma once

#include <cstdint>

#include "megatrain/plan/plan.h"

namespace megatrain {

// A random valid plan. Everything that a plan may vary is varied.
Plan random_plan(const Workload& workload, uint64_t seed);

}  // namespace megatrain
