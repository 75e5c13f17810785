#include "megatrain/train/optim_settings.h"

#include <algorithm>

#include <fmt/format.h>

namespace megatrain {

LearningRate learning_rate_of(const TrainConfig& config) {
  return {.kind = parse_schedule(config.optim.schedule),
          .lr = config.optim.lr,
          .min_lr = config.optim.min_lr,
          .warmup = config.optim.warmup,
          .decay = config.optim.decay,
          .steps = std::max<int64_t>(config.steps, 1),
          .from_zero = config.conventions != "megatrain",
          .round_down = config.conventions == "axolotl",
          .warmup_most = config.optim.warmup_most};
}

std::string unusual_learning_rate(const TrainConfig& config) {
  // Between the usual rates and ten times more or less; LLaMA-Factory's default for both is 5e-5.
  constexpr double kLeastOfAdapters = 5e-5, kMostOfAdapters = 2e-3, kMostOfWeights = 2e-4, kMostOfRandom = 0.02;
  const double lr = config.optim.lr;
  const std::string key = config.names("optim.lr");
  if (config.adapter.rank > 0 && lr < kLeastOfAdapters)
    return fmt::format(
        "{} is {}, which is low for adapters: 1e-4 to 2e-4 is usual, ten times the rate of full training; raise it if "
        "the loss hardly falls",
        key, lr);
  if (config.adapter.rank > 0 && lr > kMostOfAdapters)
    return fmt::format("{} is {}, which is high for adapters: 1e-4 to 2e-4 is usual; lower it if the loss jumps", key,
                       lr);
  if (config.adapter.rank == 0 && !config.model.path.empty() && lr > kMostOfWeights)
    return fmt::format(
        "{} is {}, which is high for all weights of a trained model: 1e-5 to 5e-5 is usual; lower it if the loss jumps",
        key, lr);
  if (config.adapter.rank == 0 && config.model.path.empty() && lr > kMostOfRandom)
    return fmt::format(
        "{} is {}, which is high even for random weights: 1e-4 to 1e-3 is usual; lower it if the loss "
        "jumps",
        key, lr);
  return "";
}

OptimStep optim_step_of(const TrainConfig& config, double lr, int64_t step) {
  const TrainConfig::Optim& o = config.optim;
  return {.adamw = {.lr = lr,
                    .beta1 = o.beta1,
                    .beta2 = o.beta2,
                    .eps = o.eps,
                    .weight_decay = o.weight_decay,
                    .t = step,
                    .seed = config.seed},
          .clip = o.clip};
}

}  // namespace megatrain
