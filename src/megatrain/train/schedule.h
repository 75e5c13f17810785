// The learning rates of a configuration.
#pragma once

#include "megatrain/optim/learning_rate.h"
#include "megatrain/train/config.h"

namespace megatrain {

// `config.steps` is the length of the run, also where epochs or tokens were given.
LearningRate learning_rate_of(const TrainConfig& config);

}  // namespace megatrain
