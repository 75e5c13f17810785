// The loss of a model on data, without training it.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/config/config.h"
#include "megatrain/data/batch.h"
#include "megatrain/train/trainer.h"

namespace megatrain {

struct ModelLoss {
  double loss = 0;  // mean over trained tokens
  int64_t tokens = 0;
};

struct LossOptions {
  std::string what = "measuring the loss";           // for the lines that say how far it is
  double expected_s = 0;                             // as Work's
  const volatile std::sig_atomic_t* stop = nullptr;  // once it is not 0, the loss is given up
};

// With the trainer's weights as they are, over all steps of the source, which has an end. Nothing when it was given up.
std::optional<ModelLoss> mean_loss(Trainer& trainer, BatchSource& source, const LossOptions& options = {});

// Of `config.model` on `config.data.eval`. Weights alone take memory, as good as no state.
ModelLoss measure_loss(TrainConfig config);

}  // namespace megatrain
