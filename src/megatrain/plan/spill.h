// Gradients, moments and weights that go to disk where the host's memory does not hold them.
#pragma once

#include <optional>

#include "megatrain/plan/budgets.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

enum class SpillOrder : uint8_t {
  last,    // the blocks that the next forward needs last: their updates have the most time
  spread,  // blocks at even distances: the disk then works through all of backward
};

// The plan with the gradients of as few blocks waiting on disk as bring it within the host's memory, by `slabs` slabs
// of the host: all that may wait there and that the disk holds when they are not enough. With clipping alone. A
// gradient is written during backward and read once after the norm; moments are read and written after it.
Plan spill_gradients(const Workload& workload, const Plan& plan, const Budgets& budgets, int64_t slabs,
                     SpillOrder order);

// The plan with the moments of as few layers on disk as bring it within the host's memory, and within the disk's, by
// `slabs` slabs of the host. The head's go last, as slabs are as large as the largest that passes. None: all that may
// go are not enough, or too much for the disk.
std::optional<Plan> spill_moments(const Workload& workload, const Plan& plan, const Budgets& budgets, int64_t slabs,
                                  SpillOrder order);

// The same, for a plan that the moments of all layers do not bring within the host's memory: they go, and the weights
// and low bits of as few blocks as need be, the last first.
std::optional<Plan> spill_weights(const Workload& workload, const Plan& plan, const Budgets& budgets, int64_t slabs);

// The plan with the inputs, then the kept outputs, of as few blocks waiting on disk as bring it within the host's
// memory, the ones that backward needs last first, but of outputs those that are read the fewest times: all that wait
// on the host and that the disk holds when they are not enough.
Plan spill_activations(const Workload& workload, const Plan& plan, const Budgets& budgets);

// The plan with the gradients, moments and weights on disk that save the host the most within the disk's budget, by two
// slabs; the plan itself where none does. For a plan that nothing on disk brings within the host's memory.
Plan spill_most(const Workload& workload, const Plan& plan, const Budgets& budgets);

// The fewest bytes on disk that bring the plan within the host's memory; none: no number of them does.
std::optional<int64_t> least_disk_bytes(const Workload& workload, const Plan& plan, const Budgets& budgets);

}  // namespace megatrain
