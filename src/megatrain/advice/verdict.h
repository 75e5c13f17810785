// The answer before the start: whether a run fits, how fast it is, what it takes and what it costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/io/json.h"
#include "megatrain/plan/fit.h"
#include "megatrain/train/setup.h"

namespace megatrain {

struct Verdict {
  bool fits = false;
  double tokens_per_s = 0;
  // Bytes that it takes; of a run that does not fit what it would take with enough memory, 0 if that is not known.
  int64_t hbm = 0, host = 0, disk = 0;
  std::optional<double> seconds;  // of the run, if its steps are known
  std::optional<double> cost;     // of the run, if a price is given too
};

// `price` is per hour.
Verdict verdict_of(const TrainConfig& config, const PlanInputs& inputs, const MemoryNeed& need, const Outlook& outlook,
                   std::optional<double> price);

// The same for a run that does not fit. Budgets above what the machine has leave its needs unknown.
Verdict verdict_of_misfit(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                          const TensorTypes& stored);

nlohmann::json verdict_json(const Verdict& verdict);

// Three lines: speed, memory and time of a run that fits. `name` is that of the model or the configuration.
// `step_chosen`: its step is not the user's.
std::string verdict_text(const Verdict& verdict, const std::string& name, const TrainConfig& config,
                         const PlanInputs& inputs, const Outlook& outlook, std::optional<double> price,
                         bool step_chosen);

}  // namespace megatrain
