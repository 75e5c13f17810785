// The loss of a model on a dataset, without training.
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
  std::string what = "measuring the loss";           // for the progress lines
  double expected_s = 0;                             // as in Work
  const volatile std::sig_atomic_t* stop = nullptr;  // measuring stops when this becomes non-zero
};

// Measures over all steps of the source, which must be finite, with the trainer's current weights. nullopt if it was
// stopped.
std::optional<ModelLoss> mean_loss(Trainer& trainer, BatchSource& source, const LossOptions& options = {});

// The loss of `config.model` on `config.data.eval`. It needs memory for the weights, and almost none for optimizer
// state.
ModelLoss measure_loss(TrainConfig config);

}  // namespace megatrain
