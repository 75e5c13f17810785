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

// Moves gradients to disk, through `slabs` host slabs: those of as few blocks as needed to bring the plan within host
// memory. If no number of blocks is enough, moves all gradients that are allowed on disk and fit there. Only with
// clipping. A gradient is written during backward and only read after the norm, whereas moments are both read and
// written after it.
Plan spill_gradients(const Workload& workload, const Plan& plan, const Budgets& budgets, int64_t slabs,
                     SpillOrder order);

// Moves moments to disk, through `slabs` host slabs: those of as few layers as needed to bring the plan within host
// memory. The head's go last, since every slab is as large as the largest record that passes through. nullopt: even all
// moments that are allowed on disk are not enough, or those needed do not fit there.
std::optional<Plan> spill_moments(const Workload& workload, const Plan& plan, const Budgets& budgets, int64_t slabs,
                                  SpillOrder order);

// Leaves frozen weights in the model's files, to be read through `slabs` host slabs: those of as few records as needed
// to bring the plan within host memory, the largest first and evenly spread over the layers. If no number is enough,
// all that may stay there. Nothing is written, and no disk is needed.
Plan leave_in_files(const Workload& workload, const Plan& plan, const Budgets& budgets, int64_t slabs);
// Leaves all that may stay there in the files.
Plan leave_all_in_files(const Workload& workload, const Plan& plan, int64_t slabs);

// For plans for which spill_moments() is not enough: moves the moments of all layers, plus the weights and low bits of
// as few blocks as needed, the last blocks first.
std::optional<Plan> spill_weights(const Workload& workload, const Plan& plan, const Budgets& budgets, int64_t slabs);

// Moves the inputs, then the kept outputs, of as few blocks to disk as needed to bring the plan within host memory.
// Inputs that backward needs last go first. Outputs that are read the fewest times go first. If that is not enough,
// moves all of them that fit on the disk.
Plan spill_activations(const Workload& workload, const Plan& plan, const Budgets& budgets);

// For plans that no spilling brings within host memory: moves those gradients, moments and weights to disk, through two
// slabs, that save the most host memory within the disk budget. Returns the plan unchanged if none saves any.
Plan spill_most(const Workload& workload, const Plan& plan, const Budgets& budgets);

// The fewest bytes on disk that bring the plan within host memory; nullopt: no amount does.
std::optional<int64_t> least_disk_bytes(const Workload& workload, const Plan& plan, const Budgets& budgets);

}  // namespace megatrain
