// What to change in a configuration that does not fit its machine.
#pragma once

#include <string>
#include <vector>

#include "megatrain/train/setup.h"

namespace megatrain {

struct Suggestion {
  std::string change;  // options of the command line, "--micro_batch=2", or memory that the machine lacks
  std::string note;    // what the change means where its keys do not say it
  double tokens_per_s = 0;
};

// Up to three changes under each of which the configuration fits, the nearest first. Each has been planned.
// `stored` as make_model() takes it.
std::vector<Suggestion> what_would_fit(const TrainConfig& config, const ModelConfig& model, const Site& site,
                                       const TensorTypes& stored = {});

}  // namespace megatrain
