// The optimizer settings of a configuration.
#pragma once

#include <string>

#include "megatrain/config/config.h"
#include "megatrain/optim/learning_rate.h"
#include "megatrain/train/step_program.h"

namespace megatrain {

// `config.steps` must be the length of the run, even if the configuration gives it in epochs or tokens.
LearningRate learning_rate_of(const TrainConfig& config);

// A sentence if the learning rate is far from what people train adapters, or the weights of a trained model, with;
// otherwise empty. A model with random weights may need any.
std::string unusual_learning_rate(const TrainConfig& config);

OptimStep optim_step_of(const TrainConfig& config, double lr, int64_t step);

}  // namespace megatrain
