#include "megatrain/advice/verdict.h"

#include <fmt/format.h>

#include "megatrain/advice/plan_inputs.h"
#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"

namespace megatrain {

namespace {

constexpr double kBillion = 1e9;
constexpr double kHour = 3600;

// Steps of the run; 0 if the data decides their number.
int64_t steps_of(const TrainConfig& config) {
  return config.tokens > 0 ? ceil_div(config.tokens, config.batch * config.seq_len) : config.steps;
}

std::string memory_text(const Verdict& v, const PlanInputs& inputs) {
  const Budgets& b = inputs.budgets;
  std::string text;
  if (b.device_is_host) {
    text =
        fmt::format("{} of {} of host memory", format_bytes(v.hbm + v.host), format_bytes(b.gpu_bytes + b.host_bytes));
  } else {
    text = fmt::format("{} of {} of GPU memory, {} of {} of host memory", format_bytes(v.hbm),
                       format_bytes(b.gpu_bytes), format_bytes(v.host), format_bytes(b.host_bytes));
  }
  return text + (v.disk > 0 ? fmt::format(", {} of disk", format_bytes(v.disk)) : ", no disk");
}

std::string cost_text(double seconds, std::optional<double> price) {
  return price ? fmt::format(" and cost {:.2f} at {:g} an hour", seconds / kHour * *price, *price) : "";
}

}  // namespace

Verdict verdict_of(const TrainConfig& config, const PlanInputs& inputs, const MemoryNeed& need, const Outlook& outlook,
                   std::optional<double> price) {
  Verdict verdict{.fits = true,
                  .tokens_per_s = static_cast<double>(inputs.workload.tokens()) / outlook.estimate.step_s,
                  .hbm = need.hbm_bytes(),
                  .host = need.host_bytes(),
                  .disk = need.disk_bytes(),
                  .seconds = {},
                  .cost = {}};
  if (const int64_t steps = steps_of(config); steps > 0)
    verdict.seconds = static_cast<double>(steps) * outlook.estimate.step_s;
  if (verdict.seconds && price) verdict.cost = *verdict.seconds / kHour * *price;
  return verdict;
}

Verdict verdict_of_misfit(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                          const TensorTypes& stored) {
  constexpr int64_t kEnough = int64_t{1} << 54;
  try {
    PlanInputs inputs = plan_inputs(config, model, planned, stored, true);
    inputs.budgets.host_bytes = kEnough;
    std::optional<Fit> found = fit(inputs);
    if (!found) {
      inputs.budgets.gpu_bytes = kEnough;
      found = fit(inputs);
    }
    if (!found) return {};
    return {.fits = false,
            .hbm = found->need.hbm_bytes(),
            .host = found->need.host_bytes(),
            .disk = found->need.disk_bytes(),
            .seconds = {},
            .cost = {}};
  } catch (const Error& error) {
    if (error.code() != ExitCode::cannot_fit) throw;
    return {};
  }
}

nlohmann::json verdict_json(const Verdict& v) {
  const auto known = [](bool is_known, auto value) { return is_known ? nlohmann::json(value) : nlohmann::json(); };
  const bool needs = v.hbm + v.host > 0;
  return {{"fits", v.fits},
          {"tokens_per_s", known(v.fits, v.tokens_per_s)},
          {"hbm", known(needs, v.hbm)},
          {"host", known(needs, v.host)},
          {"disk", known(needs, v.disk)},
          {"seconds", known(v.seconds.has_value(), v.seconds.value_or(0))},
          {"cost", known(v.cost.has_value(), v.cost.value_or(0))}};
}

std::string verdict_text(const Verdict& v, const std::string& name, const TrainConfig& config, const PlanInputs& inputs,
                         const Outlook& outlook, std::optional<double> price, bool step_chosen) {
  const std::string step =
      step_chosen ? fmt::format(" (--batch={} --micro_batch={})", config.batch, config.micro_batch) : "";
  std::string text = fmt::format("{}: {} on {}: {} tokens/s, {}x{} tokens a step{}\n",
                                 v.fits ? "fits" : "fits in memory, but not on the disk", name, inputs.profile.title(),
                                 thousands(v.tokens_per_s), config.batch, config.seq_len, step);
  text += fmt::format("takes {}\n", memory_text(v, inputs));
  text += fmt::format("a step takes {}; ", format_seconds(outlook.estimate.step_s));
  if (v.seconds) {
    text += fmt::format("{} take {}{}\n", counted(steps_of(config), "step"), format_duration(*v.seconds),
                        cost_text(*v.seconds, price));
  } else {
    const double seconds = kBillion / v.tokens_per_s;
    text += fmt::format("a billion tokens take {}{}\n", format_duration(seconds), cost_text(seconds, price));
  }
  return text;
}

}  // namespace megatrain
