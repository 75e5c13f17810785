// The loss of a model on data, without training it.
#pragma once

#include <cstdint>

#include "megatrain/train/batch.h"
#include "megatrain/train/config.h"
#include "megatrain/train/trainer.h"

namespace megatrain {

struct ModelLoss {
  double loss = 0;  // mean over trained tokens
  int64_t tokens = 0;
};

// With the trainer's weights as they are, over all steps of the source, which has an end.
ModelLoss mean_loss(Trainer& trainer, BatchSource& source);

// Of `config.model` on `config.data.eval`. Weights alone take memory, as good as no state.
ModelLoss measure_loss(TrainConfig config);

}  // namespace megatrain
