// The loss of a model on datasets, without training it: the trainer's own evaluation.
#pragma once

#include <cstdint>

#include "megatrain/train/config.h"

namespace megatrain {

struct ModelLoss {
  double loss = 0;  // mean over trained tokens
  int64_t tokens = 0;
  int64_t samples = 0;
};

// Of `config.model` on `config.data.train`. Weights alone take memory, as good as no state.
ModelLoss measure_loss(TrainConfig config);

}  // namespace megatrain
