// The cost model: each lane's time alone, and which windows can hide which.
#include <algorithm>

#include "megatrain/plan/plan.h"

namespace megatrain {

int64_t fetched_weight_bytes(const Workload& w, const Plan& plan) {
  const int64_t element = dtype_bytes(w.dtype);
  int64_t streamed = 0;
  for (const Tier tier : plan.weights) streamed += tier == Tier::host;
  const int64_t sweeps = static_cast<int64_t>(plan.sweeps.size());
  // A sweep passes a block twice; the blocks still in their slots at each turn are not fetched again.
  const int64_t turns = 2 * sweeps - 1;
  const int64_t passes = streamed * 2 * sweeps - turns * std::min(plan.slots, streamed);
  const int64_t head = w.head_elements + (w.tied ? w.embedding_elements : 0);
  return ((w.blocks - streamed + passes) * w.block_elements + head) * element;
}

Estimate estimate(const Workload& w, const Plan& plan, const MachineProfile& m) {
  const double tokens = static_cast<double>(w.tokens());
  const double element = static_cast<double>(dtype_bytes(w.dtype));
  const double blocks = static_cast<double>(w.blocks);
  const double block_s = blocks * w.block_flops_per_token * tokens / m.flops_per_s;
  const double head_s = 3 * w.head_flops_per_token * tokens / m.flops_per_s;
  double host_boundaries = 0;
  for (const Tier tier : plan.boundary) host_boundaries += tier == Tier::host;
  const double boundary = static_cast<double>(w.micro_batches * w.boundary_bytes());
  const double weights = static_cast<double>(fetched_weight_bytes(w, plan));

  Estimate e;
  const double forward_s = block_s, backward_s = head_s + 3 * block_s;  // backward recomputes
  const double fetch_s = weights / m.h2d_bytes_per_s;
  const double leave_s = static_cast<double>(w.all_elements()) * element / m.d2h_bytes_per_s;
  e.compute_s = forward_s + backward_s;
  e.h2d_s = fetch_s + host_boundaries * boundary / m.h2d_bytes_per_s;
  e.d2h_s = leave_s + host_boundaries * boundary / m.d2h_bytes_per_s;
  const double update_bytes = w.dtype == DType::bf16 ? 26 : 28;
  e.update_s = static_cast<double>(w.all_elements()) * update_bytes / m.dram_bytes_per_s;
  if (plan.serial) {
    e.step_s = e.compute_s + e.h2d_s + e.d2h_s + e.update_s;
  } else {
    // With clipping the update hides behind the next forward only; without, behind backward.
    const double forward = std::max({forward_s, fetch_s / 2, w.clip ? e.update_s : 0.0});
    const double backward = std::max({backward_s, e.h2d_s - fetch_s / 2, leave_s, w.clip ? 0.0 : e.update_s});
    e.step_s = forward + backward;
  }
  const std::pair<double, const char*> lanes[] = {
      {e.compute_s, "compute"}, {e.h2d_s, "h2d"}, {e.d2h_s, "d2h"}, {e.update_s, "update"}};
  e.bound_by = std::max_element(std::begin(lanes), std::end(lanes))->second;
  return e;
}

}  // namespace megatrain
