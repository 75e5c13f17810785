#include "megatrain/advice/plan_inputs.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/train/expert_groups.h"
#include "megatrain/train/planned_machine.h"

namespace megatrain {

namespace {

// `choose(workload_of, budgets, profile)` returns the workload.
template <class Choose>
PlanInputs prospect_with(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                         const TensorTypes& stored, const Choose& choose) {
  const RunIdentity identity = make_identity(config, model);
  const Budgets budgets = make_budgets(config, planned);
  const MachineProfile profile = profile_for(planned.profile, config, model, identity);
  const auto workload_of = [&](int64_t experts_per_record) {
    return make_workload(config, model, identity, planned, stored, experts_per_record);
  };
  return {.workload = choose(workload_of, budgets, profile), .budgets = budgets, .profile = profile};
}

}  // namespace

PlanInputs plan_inputs(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                       const TensorTypes& stored, bool quickly) {
  return prospect_with(config, model, planned, stored,
                       [&](const auto& workload_of, const Budgets& budgets, const MachineProfile& profile) {
                         return choose_groups(config, model, make_identity(config, model).dtype, budgets, profile,
                                              workload_of, quickly);
                       });
}

PlanInputs plan_inputs_of_group(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                                const TensorTypes& stored, int64_t experts_per_record) {
  return prospect_with(
      config, model, planned, stored,
      [&](const auto& workload_of, const Budgets&, const MachineProfile&) { return workload_of(experts_per_record); });
}

std::optional<Fit> fit_smallest_step(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                                     const TensorTypes& stored) {
  TrainConfig smallest = config;
  smallest.batch = config.micro_batch;
  smallest.plan.clear();  // it is for larger steps
  return fit(plan_inputs(smallest, model, planned, stored, true));
}

TrainConfig with_state(TrainConfig config, const StateFormat& format) {
  config.state.moments = moments_name(format.moments);
  config.state.master = master_name(format.master);
  return config;
}

std::vector<std::string> lower_half(const ModelConfig& model) {
  std::vector<std::string> patterns = {model.embedding_module + ".*"};
  const int64_t half = model.layers / 2;  // layers 0 ... half - 1
  for (int64_t ten = 0; ten * 10 < half; ++ten) {
    const int64_t last = std::min<int64_t>(half - ten * 10, 10) - 1;
    patterns.push_back(fmt::format("model.layers.{}{}.*", ten > 0 ? std::to_string(ten) : "",
                                   last > 0 ? fmt::format("[0-{}]", last) : "0"));
  }
  return patterns;
}

}  // namespace megatrain
