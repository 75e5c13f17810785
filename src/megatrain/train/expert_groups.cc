#include "megatrain/train/expert_groups.h"

#include <algorithm>
#include <optional>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/model/model.h"
#include "megatrain/train/setup.h"

namespace megatrain {

namespace {

// Of the planner's step; none: no plan fits.
std::optional<double> seconds_of(const Workload& workload, const Budgets& budgets, const MachineProfile& machine) {
  try {
    return estimate(workload, make_plan(workload, budgets, machine, nullptr), machine).step_s;
  } catch (const Error& error) {
    if (error.code() != ExitCode::cannot_fit) throw;
    return {};
  }
}

}  // namespace

int64_t experts_in_a_record(const ModelConfig& model, DType dtype, int64_t device_bytes) {
  constexpr int64_t kShare = 24;
  const int64_t experts = model.experts.count;
  if (experts == 0) return 0;
  const int64_t layer_bytes = largest_layer_record(model) * dtype_bytes(dtype);
  const int64_t most = std::max<int64_t>(device_bytes / kShare, 1);
  const int64_t records = std::clamp<int64_t>(ceil_div(layer_bytes, most), 1, experts);
  return records == 1 ? 0 : ceil_div(experts, records);
}

Workload choose_groups(const TrainConfig& config, const ModelConfig& model, DType dtype, const Budgets& budgets,
                       const MachineProfile& machine, const std::function<Workload(int64_t)>& workload_of,
                       bool quickly) {
  constexpr int64_t kMostGroups = 16;
  if (model.experts.count == 0) return workload_of(0);
  if (!config.plan.empty()) return workload_of(read_plan(config.plan).experts_per_record);
  const int64_t large = experts_in_a_record(model, dtype, budgets.gpu_bytes);
  const int64_t small = ceil_div(large > 0 ? large : model.experts.count, 4);
  Workload workload = workload_of(large);
  if (quickly) return workload;
  Workload finer = workload_of(small);
  const auto seconds = seconds_of(workload, budgets, machine), finer_seconds = seconds_of(finer, budgets, machine);
  if (!seconds && !finer_seconds) return workload_of(std::min(small, ceil_div(model.experts.count, kMostGroups)));
  return finer_seconds && (!seconds || *finer_seconds < *seconds) ? finer : workload;
}

}  // namespace megatrain
