#include "megatrain/advice/prospect.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/train/expert_groups.h"
#include "megatrain/train/site.h"

namespace megatrain {

namespace {

// `choose(workload_of, budgets, profile)` returns the workload.
template <class Choose>
Prospect prospect_with(const TrainConfig& config, const ModelConfig& model, const Site& site, const TensorTypes& stored,
                       const Choose& choose) {
  const RunIdentity identity = make_identity(config, model);
  const Budgets budgets = make_budgets(config, site);
  const MachineProfile profile = profile_for(site.profile, config, model, identity);
  const auto workload_of = [&](int64_t experts_per_record) {
    return make_workload(config, model, identity, site, stored, experts_per_record);
  };
  return {.workload = choose(workload_of, budgets, profile), .budgets = budgets, .profile = profile};
}

}  // namespace

Prospect prospect_of(const TrainConfig& config, const ModelConfig& model, const Site& site, const TensorTypes& stored,
                     bool quickly) {
  return prospect_with(
      config, model, site, stored, [&](const auto& workload_of, const Budgets& budgets, const MachineProfile& profile) {
        return choose_groups(config, model, make_identity(config, model).dtype, budgets, profile, workload_of, quickly);
      });
}

Prospect prospect_of_group(const TrainConfig& config, const ModelConfig& model, const Site& site,
                           const TensorTypes& stored, int64_t experts_per_record) {
  return prospect_with(
      config, model, site, stored,
      [&](const auto& workload_of, const Budgets&, const MachineProfile&) { return workload_of(experts_per_record); });
}

std::optional<Fit> fit_smallest_step(const TrainConfig& config, const ModelConfig& model, const Site& site,
                                     const TensorTypes& stored) {
  TrainConfig smallest = config;
  smallest.batch = config.micro_batch;
  smallest.plan.clear();  // it is for larger steps
  return fit(prospect_of(smallest, model, site, stored, true));
}

TrainConfig with_state(TrainConfig config, const StateFormat& format) {
  config.state.moments = moments_name(format.moments);
  config.state.master = master_name(format.master);
  return config;
}

std::vector<std::string> lower_half(int64_t layers) {
  std::vector<std::string> patterns = {"model.embed_tokens.*"};
  const int64_t half = layers / 2;  // layers 0 ... half - 1
  for (int64_t ten = 0; ten * 10 < half; ++ten) {
    const int64_t last = std::min<int64_t>(half - ten * 10, 10) - 1;
    patterns.push_back(fmt::format("model.layers.{}{}.*", ten > 0 ? std::to_string(ten) : "",
                                   last > 0 ? fmt::format("[0-{}]", last) : "0"));
  }
  return patterns;
}

}  // namespace megatrain
