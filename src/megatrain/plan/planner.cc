#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

namespace {

// The plan that needs least of the device: one slot, one gradient slab, every boundary on the host.
Plan smallest_plan(const Workload& w) {
  const size_t blocks = static_cast<size_t>(w.blocks);
  return {.slots = 1,
          .weights = std::vector<Tier>(blocks, Tier::host),
          .boundary = std::vector<Tier>(blocks, Tier::host),
          .boundary_slots = 2,
          .sweeps = {w.micro_batches},
          .gradient_slabs = 1,
          .host_gradient_slabs = w.clip ? w.blocks : std::min<int64_t>(w.blocks, 4)};
}

bool fits(const Workload& w, const Plan& plan, const Budgets& b) {
  const MemoryNeed need = memory_need(w, plan);
  return need.hbm_bytes() <= b.gpu_bytes && need.host_bytes() <= b.host_bytes;
}

std::string largest_items(const std::vector<MemoryNeed::Item>& items) {
  std::vector<MemoryNeed::Item> sorted = items;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(4, sorted.size()); ++i) {
    text += fmt::format("{}{} {}", i ? ", " : "", sorted[i].tag, format_bytes(sorted[i].bytes));
  }
  return text;
}

}  // namespace

void check_fit(const Workload& w, const Plan& plan, const Budgets& b) {
  const MemoryNeed need = memory_need(w, plan);
  if (need.hbm_bytes() > b.gpu_bytes) {
    fail(ExitCode::cannot_fit,
         fmt::format("this run needs {} of device memory and the budget is {}; the largest shares are {}. "
                     "Raise memory.gpu to {}, or lower micro_batch (now {} tokens a micro-batch), seq_len, mlp_chunk or head_chunk",
                     format_bytes(need.hbm_bytes()), format_bytes(b.gpu_bytes), largest_items(need.hbm),
                     format_bytes(need.hbm_bytes()), w.micro_tokens));
  }
  if (need.host_bytes() > b.host_bytes) {
    fail(ExitCode::cannot_fit,
         fmt::format("this run needs {} of host memory and the budget is {}; the largest shares are {}. "
                     "Raise memory.host to {}, or train a smaller model or fewer tokens a step",
                     format_bytes(need.host_bytes()), format_bytes(b.host_bytes), largest_items(need.host),
                     format_bytes(need.host_bytes())));
  }
}

Plan make_plan(const Workload& w, const Budgets& budgets, std::vector<std::string>* notes) {
  Plan plan = smallest_plan(w);
  check_fit(w, plan, budgets);

  // Spend what is left where it saves most: overlap first, then boundaries that need not move, then weights.
  const auto try_change = [&](auto&& change) {
    Plan larger = plan;
    change(larger);
    if (!fits(w, larger, budgets)) return false;
    plan = larger;
    return true;
  };
  const bool two_slots = try_change([&](Plan& p) { p.slots = std::min<int64_t>(2, w.blocks); });
  const bool two_slabs = try_change([&](Plan& p) { p.gradient_slabs = std::min<int64_t>(2, w.blocks); });
  try_change([&](Plan& p) { p.boundary_slots = 3; });
  const bool all_kept = try_change([&](Plan& p) { std::fill(p.boundary.begin(), p.boundary.end(), Tier::hbm); });
  if (!all_kept) {
    // The last inputs written are needed first in backward.
    for (int64_t l = w.blocks - 1; l >= 0 && try_change([&](Plan& p) { p.boundary[static_cast<size_t>(l)] = Tier::hbm; }); --l) {
    }
  }
  try_change([&](Plan& p) { p.slots = std::min<int64_t>(3, w.blocks); });
  for (int64_t l = 0; l < w.blocks; ++l) {
    if (!try_change([&](Plan& p) { p.weights[static_cast<size_t>(l)] = Tier::hbm; })) break;
  }
  if (notes) {
    if (!two_slots) notes->push_back("one weight slot: fetching a block waits for the block before it");
    if (!two_slabs) notes->push_back("one gradient slab: a block's backward waits for the previous gradient to leave");
    if (!all_kept) notes->push_back("some block inputs wait in host memory");
  }
  return plan;
}

Plan random_plan(const Workload& w, uint64_t seed) {
  constexpr uint64_t kPurpose = 0x706c616e;  // "plan"
  uint64_t index = 0;
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random_below(seed, kPurpose, index++, static_cast<uint64_t>(bound))); };
  Plan plan;
  plan.slots = 1 + below(w.blocks);
  plan.boundary_slots = 2 + below(3);
  plan.gradient_slabs = 1 + below(3);
  plan.host_gradient_slabs = w.clip ? w.blocks : 1 + below(w.blocks);
  plan.serial = below(12) == 0;
  const int64_t resident = below(3);  // none, some, mostly
  const int64_t kept = below(4);
  for (int64_t l = 0; l < w.blocks; ++l) {
    plan.weights.push_back(below(4) < resident ? Tier::hbm : Tier::host);
    plan.boundary.push_back(below(3) < kept ? Tier::hbm : Tier::host);
  }
  for (int64_t left = w.micro_batches; left > 0;) {
    const int64_t width = below(2) ? left : 1 + below(left);
    plan.sweeps.push_back(width);
    left -= width;
  }
  return plan;
}

void check_plan(const Workload& w, const Plan& p) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) fail_config("the plan does not fit this run: " + what + "; make a new one with 'megatrain plan'");
  };
  require(p.slots >= 1 && p.slots <= std::max<int64_t>(1, w.blocks), fmt::format("slots is {}, expected 1 to {}", p.slots, w.blocks));
  require(static_cast<int64_t>(p.weights.size()) == w.blocks, fmt::format("it places weights of {} blocks, the model has {}", p.weights.size(), w.blocks));
  require(static_cast<int64_t>(p.boundary.size()) == w.blocks, fmt::format("it places inputs of {} blocks, the model has {}", p.boundary.size(), w.blocks));
  for (const auto* tiers : {&p.weights, &p.boundary}) {
    for (const Tier tier : *tiers) require(tier != Tier::disk, "disk is not a place for weights or block inputs");
  }
  require(p.boundary_slots >= 2, fmt::format("boundary_slots is {}, expected 2 or more", p.boundary_slots));
  require(p.gradient_slabs >= 1, fmt::format("gradient_slabs is {}, expected 1 or more", p.gradient_slabs));
  require(p.host_gradient_slabs >= 1 && p.host_gradient_slabs <= w.blocks && (!w.clip || p.host_gradient_slabs == w.blocks),
          fmt::format("host_gradient_slabs is {}, expected {}", p.host_gradient_slabs,
                      w.clip ? fmt::format("{} (clipping keeps every gradient until the norm is known)", w.blocks) : fmt::format("1 to {}", w.blocks)));
  int64_t total = 0;
  for (const int64_t width : p.sweeps) {
    require(width >= 1, "a sweep has no micro-batch");
    total += width;
  }
  require(total == w.micro_batches, fmt::format("its sweeps carry {} micro-batches, the step has {}", total, w.micro_batches));
}

}  // namespace megatrain
