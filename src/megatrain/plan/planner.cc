#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

namespace {

// Plans form a ladder: overlap first, then boundaries that need not move, then weights. No rung is slower than the one
// below it, and none needs more of the host; so more memory never makes a slower plan.
int64_t rungs(const Workload& w) {
  return 2 * w.blocks + std::min<int64_t>(3, w.blocks) + std::min<int64_t>(2, w.blocks);
}

Plan rung(const Workload& w, int64_t height) {
  const auto climb = [&height](int64_t most) {
    const int64_t taken = std::min(height, most);
    height -= taken;
    return taken;
  };
  const int64_t two = std::min<int64_t>(2, w.blocks), three = std::min<int64_t>(3, w.blocks);
  const size_t blocks = static_cast<size_t>(w.blocks);
  Plan plan{.weights = std::vector<Tier>(blocks, Tier::host),
            .boundary = std::vector<Tier>(blocks, Tier::host),
            .sweeps = {w.micro_batches}};
  plan.slots = 1 + climb(two - 1);
  plan.gradient_slabs = 1 + climb(two - 1);
  plan.boundary_slots = 2 + climb(1);
  std::fill_n(plan.boundary.rbegin(), climb(w.blocks),
              Tier::hbm);  // the last inputs written are needed first in backward
  plan.slots += climb(three - two);
  std::fill_n(plan.weights.begin(), climb(w.blocks), Tier::hbm);
  plan.host_gradient_slabs = w.clip ? w.blocks : std::min<int64_t>(w.blocks, 4);
  return plan;
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
                     "Raise memory.gpu to {}, or lower micro_batch (now {} tokens a micro-batch), seq_len, mlp_chunk "
                     "or head_chunk",
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
  Plan nearest;
  int64_t lacking = std::numeric_limits<int64_t>::max();  // device bytes that the nearest plan lacks, or host bytes
                                                          // when it lacks no others
  bool lacks_device = true;
  for (int64_t height = rungs(w) - 1; height >= 0; --height) {
    const Plan plan = rung(w, height);
    const MemoryNeed need = memory_need(w, plan);
    const int64_t device = std::max<int64_t>(need.hbm_bytes() - budgets.gpu_bytes, 0),
                  host = std::max<int64_t>(need.host_bytes() - budgets.host_bytes, 0);
    if (device == 0 && host == 0) {
      if (notes) {
        if (plan.slots < std::min<int64_t>(2, w.blocks))
          notes->push_back("one weight slot: fetching a block waits for the block before it");
        if (plan.gradient_slabs < std::min<int64_t>(2, w.blocks))
          notes->push_back("one gradient slab: a block's backward waits for the previous gradient to leave");
        if (std::count(plan.boundary.begin(), plan.boundary.end(), Tier::host) > 0)
          notes->push_back("some block inputs wait in host memory");
      }
      return plan;
    }
    const bool nearer = (device > 0) == lacks_device ? (device > 0 ? device : host) < lacking : device == 0;
    if (nearer) {
      nearest = plan;
      lacking = device > 0 ? device : host;
      lacks_device = device > 0;
    }
  }
  check_fit(w, nearest, budgets);
  fail_internal("a plan that lacks memory fits");
}

Plan random_plan(const Workload& w, uint64_t seed) {
  constexpr uint64_t kPurpose = 0x706c616e;  // "plan"
  uint64_t index = 0;
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random_below(seed, kPurpose, index++, static_cast<uint64_t>(bound)));
  };
  Plan plan;
  plan.slots =
      1 + below(below(3) ? std::min<int64_t>(3, w.blocks) : w.blocks);  // mostly few: streaming is the hard case
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
  require(p.slots >= 1 && p.slots <= std::max<int64_t>(1, w.blocks),
          fmt::format("slots is {}, expected 1 to {}", p.slots, w.blocks));
  require(static_cast<int64_t>(p.weights.size()) == w.blocks,
          fmt::format("it places weights of {} blocks, the model has {}", p.weights.size(), w.blocks));
  require(static_cast<int64_t>(p.boundary.size()) == w.blocks,
          fmt::format("it places inputs of {} blocks, the model has {}", p.boundary.size(), w.blocks));
  for (const auto* tiers : {&p.weights, &p.boundary}) {
    for (const Tier tier : *tiers) require(tier != Tier::disk, "disk is not a place for weights or block inputs");
  }
  require(p.boundary_slots >= 2 && p.boundary_slots <= w.blocks + 3,
          fmt::format("boundary_slots is {}, expected 2 to {}", p.boundary_slots, w.blocks + 3));
  require(p.gradient_slabs >= 1 && p.gradient_slabs <= w.blocks + 2,
          fmt::format("gradient_slabs is {}, expected 1 to {}", p.gradient_slabs, w.blocks + 2));
  require(
      p.host_gradient_slabs >= 1 && p.host_gradient_slabs <= w.blocks && (!w.clip || p.host_gradient_slabs == w.blocks),
      fmt::format("host_gradient_slabs is {}, expected {}", p.host_gradient_slabs,
                  w.clip ? fmt::format("{} (clipping keeps every gradient until the norm is known)", w.blocks)
                         : fmt::format("1 to {}", w.blocks)));
  int64_t total = 0;
  for (const int64_t width : p.sweeps) {
    require(width >= 1, "a sweep has no micro-batch");
    total += width;
  }
  require(total == w.micro_batches,
          fmt::format("its sweeps carry {} micro-batches, the step has {}", total, w.micro_batches));
}

}  // namespace megatrain
