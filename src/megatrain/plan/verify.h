// The verifier: proves from lane order and waits alone that every conflicting pair of accesses in a schedule is
// ordered, within a step and across steps.
#pragma once

#include <string>
#include <vector>

#include "megatrain/plan/schedule.h"

namespace megatrain {

// One sentence for each unordered conflicting pair (at most `limit`); empty if the schedule is sound.
std::vector<std::string> verify(const Schedule& schedule, size_t limit = 8);

// Every kind of wait the schedule has.
std::vector<WaitKind> wait_kinds(const Schedule& schedule);

// The schedule without the waits of one kind, to show that each kind is needed.
Schedule without_waits(const Schedule& schedule, const WaitKind& kind);

}  // namespace megatrain
