// The learning rates of a configuration.
#pragma once

#include "megatrain/config/config.h"
#include "megatrain/optim/learning_rate.h"

namespace megatrain {

// `config.steps` is the length of the run, also where epochs or tokens were given.
LearningRate learning_rate_of(const TrainConfig& config);

}  // namespace megatrain
