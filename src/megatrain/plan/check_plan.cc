// Whether a plan makes sense for a workload, and whether it fits the budgets.
#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

namespace {

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

void check_plan(const Workload& w, const Plan& p) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) fail_config("the plan does not fit this run: " + what + "; make a new one with 'megatrain plan'");
  };
  require(p.slots >= 1 && p.slots <= std::max<int64_t>(1, w.blocks),
          fmt::format("slots is {}, expected 1 to {}", p.slots, w.blocks));
  const auto covers = [&](const char* what, size_t size, int64_t expected, const char* of) {
    require(static_cast<int64_t>(size) == expected,
            fmt::format("it says {} of {} {}, the model has {}", what, size, of, expected));
  };
  covers("where the weights are", p.weights.size(), w.blocks, "blocks");
  covers("where the state is", p.state.size(), w.records(), "layers");
  covers("what visits the device", p.visits.size(), w.blocks, "blocks");
  covers("what to keep", p.keep.size(), w.blocks, "blocks");
  covers("where the inputs wait", p.boundary.size(), w.blocks, "blocks");
  for (const auto* tiers : {&p.weights, &p.state, &p.boundary}) {
    for (const Tier tier : *tiers)
      require(tier != Tier::disk, "disk is not a place for weights, state or block inputs");
  }
  for (int64_t block = 1; block <= w.blocks; ++block) {
    require(!p.state_on_device(block) || p.weights[static_cast<size_t>(block - 1)] == Tier::hbm,
            fmt::format("layer {}'s state is on the device, so its weights must be", block));
    require(!p.visiting(block) || (w.clip && !p.state_on_device(block) && w.is_trained(block)),
            fmt::format("layer {}'s state may visit the device only when it lives on the host, is trained and "
                        "gradients are clipped",
                        block));
  }
  require(p.boundary_slots >= 2 && p.boundary_slots <= w.blocks + 3,
          fmt::format("boundary_slots is {}, expected 2 to {}", p.boundary_slots, w.blocks + 3));
  require(p.gradient_slabs >= 1 && p.gradient_slabs <= w.blocks + 2,
          fmt::format("gradient_slabs is {}, expected 1 to {}", p.gradient_slabs, w.blocks + 2));
  const int64_t host_blocks = p.host_updated_blocks(w);
  require(p.host_gradient_slabs >= std::min<int64_t>(1, host_blocks) && p.host_gradient_slabs <= host_blocks &&
              (!w.clip || p.host_gradient_slabs == host_blocks),
          fmt::format("host_gradient_slabs is {}, expected {}", p.host_gradient_slabs,
                      w.clip ? fmt::format("{} (clipping keeps every gradient until the norm is known)", host_blocks)
                             : fmt::format("1 to {}", host_blocks)));
  int64_t total = 0;
  for (const int64_t width : p.sweeps) {
    require(width >= 1, "a sweep has no micro-batch");
    total += width;
  }
  require(total == w.micro_batches,
          fmt::format("its sweeps carry {} micro-batches, the step has {}", total, w.micro_batches));
}

}  // namespace megatrain
