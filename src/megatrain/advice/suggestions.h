// Suggests changes to a configuration that does not fit its machine.
#pragma once

#include <string>
#include <vector>

#include "megatrain/train/setup.h"

namespace megatrain {

struct Suggestion {
  std::string change;  // options such as "--micro_batch=2", or memory that the machine lacks
  std::string note;    // what the change means, if its keys do not say so
  double tokens_per_s = 0;
};

// Up to three changes, nearest first, each of which makes the configuration fit. Each has been planned. `stored` is as
// for make_model().
std::vector<Suggestion> what_would_fit(const TrainConfig& config, const ModelConfig& model,
                                       const PlannedMachine& planned, const TensorTypes& stored = {});

}  // namespace megatrain
