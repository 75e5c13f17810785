// Suggests changes to a configuration that does not fit its machine.
#pragma once

#include <string>
#include <vector>

#include "megatrain/advice/realistic_step.h"
#include "megatrain/train/setup.h"

namespace megatrain {

struct Suggestion {
  std::string change;  // options such as "--micro_batch=2", or memory that the machine lacks
  std::string note;    // what the change means, if its keys do not say so
  double tokens_per_s = 0;
  double weight = 1;  // of its speed among others
};

// Up to four changes, each of which makes the configuration fit, the best first: limits of the user's own, then the
// fastest. A way that trains all weights counts for more than its speed, and RAM to buy comes last. Each has been
// planned. `stored` is as for make_model(). What is `free` of the step is chosen for each change.
std::vector<Suggestion> what_would_fit(const TrainConfig& config, const ModelConfig& model,
                                       const PlannedMachine& planned, const TensorTypes& stored = {},
                                       const FreeStep& free = {});

// Up to four changes that make a configuration faster that fits at `tokens_per_s`, the fastest first, and adapters if
// it trains all weights. Empty if compute bounds it and nothing here helps.
std::vector<Suggestion> what_is_faster(const TrainConfig& config, const ModelConfig& model,
                                       const PlannedMachine& planned, const TensorTypes& stored, const FreeStep& free,
                                       double tokens_per_s);

// The options as one types them: patterns are quoted so that the shell does not expand them.
std::string quoted_for_shell(const std::string& options);

}  // namespace megatrain
