#include "megatrain/train/optim_settings.h"

#include <algorithm>

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
