#include "megatrain/train/expert_groups.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/base/rng.h"
#include "megatrain/model/model.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/fit.h"
#include "megatrain/train/setup.h"

namespace megatrain {

namespace {

// Whether all experts of a layer must be in one record.
bool undivided(const ModelConfig& model) { return model.experts.count == 0 || model.experts.beside_mlp; }

}  // namespace

int64_t experts_in_a_record(const ModelConfig& model, DType dtype, int64_t device_bytes) {
  constexpr int64_t kShare = 24;
  const int64_t experts = model.experts.count;
  if (undivided(model)) return 0;
  const int64_t layer_bytes = largest_layer_record(model) * dtype_bytes(dtype);
  const int64_t most = std::max<int64_t>(device_bytes / kShare, 1);
  const int64_t records = std::clamp<int64_t>(ceil_div(layer_bytes, most), 1, experts);
  return records == 1 ? 0 : ceil_div(experts, records);
}

std::vector<int64_t> group_sizes(const ModelConfig& model, DType dtype, int64_t device_bytes) {
  constexpr int64_t kMostGroups = 16;
  const int64_t experts = model.experts.count;
  if (undivided(model)) return {0};
  const int64_t large = experts_in_a_record(model, dtype, device_bytes);
  const int64_t small = ceil_div(large > 0 ? large : experts, 4);
  return {large, small, std::min(small, ceil_div(experts, kMostGroups))};
}

int64_t random_group(const ModelConfig& model, uint64_t seed) {
  constexpr uint64_t kPurpose = 0x67726f7570;  // "group"
  const int64_t experts = model.experts.count;
  return undivided(model) ? 0 : static_cast<int64_t>(random_below(seed, kPurpose, 0, static_cast<uint64_t>(experts)));
}

Workload choose_groups(const TrainConfig& config, const ModelConfig& model, DType dtype, const Budgets& budgets,
                       const MachineProfile& machine, const std::function<Workload(int64_t)>& workload_of,
                       bool quickly) {
  if (undivided(model)) return workload_of(0);
  if (!config.plan.empty()) {
    const int64_t planned = read_planned_experts_per_record(config.plan);
    if (planned < 0 || planned > model.experts.count)
      fail_config(fmt::format("{}: 'experts_per_record' is {}, expected 0 to {}; make a new one with 'megatrain plan'",
                              config.plan, planned, model.experts.count));
    return workload_of(planned);
  }
  const std::vector<int64_t> sizes = group_sizes(model, dtype, budgets.gpu_bytes);
  const PlanInputs coarse{workload_of(sizes[0]), budgets, machine};
  if (quickly) return coarse.workload;
  const PlanInputs fine{workload_of(sizes[1]), budgets, machine};
  const auto coarse_fit = fit(coarse), fine_fit = fit(fine);
  if (!coarse_fit && !fine_fit) return workload_of(sizes[2]);
  const auto seconds = [](const Fit& found) { return found.outlook.estimate.step_s; };
  return fine_fit && (!coarse_fit || seconds(*fine_fit) < seconds(*coarse_fit)) ? fine.workload : coarse.workload;
}

}  // namespace megatrain
