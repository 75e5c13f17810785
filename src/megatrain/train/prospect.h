// What a configuration would need and how fast it would be at a site, and what to change where it does not fit. Nothing
// is opened, allocated or read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/plan/inventory.h"
#include "megatrain/plan/outlook.h"
#include "megatrain/train/setup.h"

namespace megatrain {

// A configuration at a site, ready to be planned.
struct Prospect {
  Workload workload;
  Budgets budgets;
  MachineProfile profile;  // for the calls of this run
};
Prospect prospect_of(const TrainConfig& config, const ModelConfig& model, const Site& site);

struct Fit {
  Plan plan;
  Outlook outlook;
  MemoryNeed need;
};
// The planner's plan; nothing when none fits.
std::optional<Fit> fit(const Prospect& prospect);

struct Suggestion {
  std::string change;  // keys as on the command line, and what they mean where they do not say it
  double tokens_per_s = 0;
};
// Of a configuration that does not fit: up to three changes under each of which it does, the nearest first.
std::vector<Suggestion> what_would_fit(const TrainConfig& config, const ModelConfig& model, const Site& site);

TrainConfig with_state(TrainConfig config, const StateFormat& format);

// "model.embed_tokens.*" and patterns that match the layers below half of them.
std::vector<std::string> lower_half(int64_t layers);

}  // namespace megatrain
