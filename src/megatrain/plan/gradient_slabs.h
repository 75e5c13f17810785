// Where the blocks' gradients lie while they are summed and while they wait: slabs one behind the other, each as large
// as what it holds.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/plan/plan.h"

namespace megatrain {

struct GradientSlabs {
  std::vector<int64_t> of_block;  // (L) -1: the block is frozen, or takes whichever slab is free
  std::vector<int64_t> begin;     // (slabs + 1) elements

  int64_t elements() const { return begin.back(); }
};

// On the device, fp32. A block has a slab of its own when its gradient must stay there past the block's backward;
// the others share the first.
GradientSlabs gradient_sums(const Workload& workload, const Plan& plan);

// On the host. With clipping every block the host updates has one, without they take turns.
GradientSlabs waiting_gradients(const Workload& workload, const Plan& plan);

// Elements of them all, without the tables: the planner asks often.
struct GradientElements {
  int64_t sums = 0;             // gradient_sums().elements()
  int64_t waiting = 0;          // waiting_gradients().elements()
  int64_t largest_leaving = 0;  // of the gradients of blocks that the host updates
};
GradientElements gradient_elements(const Workload& workload, const Plan& plan);

}  // namespace megatrain
