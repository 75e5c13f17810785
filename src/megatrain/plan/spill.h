// Spills gradients, moments and weights to disk when host memory cannot hold them.
#pragma once

#include <optional>

#include "megatrain/plan/budgets.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

enum class SpillOrder : uint8_t {
  last,    // the blocks that the next forward needs last: their updates have the most time
  spread,  // blocks at even distances, so that the disk works throughout backward
};

// Moves the gradients of as few blocks to disk as bring the plan within host memory, through `slabs` host slabs. If
// that is not enough, moves all gradients that may go and that the disk holds. Only with clipping. A gradient is
// written during backward and read once after the norm; moments are both read and written after it.
Plan spill_gradients(const Workload& workload, const Plan& plan, const Budgets& budgets, int64_t slabs,
                     SpillOrder order);

// Moves the moments of as few layers to disk as bring the plan within host memory and the disk budget, through `slabs`
// host slabs. The head's go last, since every slab is as large as the largest record that passes through. nullopt:
// moving all that may go is not enough, or too much for the disk.
std::optional<Plan> spill_moments(const Workload& workload, const Plan& plan, const Budgets& budgets, int64_t slabs,
                                  SpillOrder order);

// The same, if moving the moments of all layers is not enough: moves all of them, plus the weights and low bits of as
// few blocks as needed, the last blocks first.
std::optional<Plan> spill_weights(const Workload& workload, const Plan& plan, const Budgets& budgets, int64_t slabs);

// Moves the inputs, then the kept outputs, of as few blocks to disk as bring the plan within host memory. Inputs go in
// reverse order of need: those that backward needs last go first. Outputs that are read the fewest times go first. If
// that is not enough, moves everything that waits on the host and that the disk holds.
Plan spill_activations(const Workload& workload, const Plan& plan, const Budgets& budgets);

// Moves the gradients, moments and weights to disk that save the most host memory within the disk budget, through two
// slabs. Returns the plan unchanged if nothing saves any. For plans that no spilling brings within host memory.
Plan spill_most(const Workload& workload, const Plan& plan, const Budgets& budgets);

// The fewest bytes on disk that bring the plan within host memory; nullopt: no amount does.
std::optional<int64_t> least_disk_bytes(const Workload& workload, const Plan& plan, const Budgets& budgets);

}  // namespace megatrain
