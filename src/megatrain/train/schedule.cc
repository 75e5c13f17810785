#include "megatrain/train/schedule.h"

#include <algorithm>

namespace megatrain {

LearningRate learning_rate_of(const TrainConfig& config) {
  return {.kind = parse_schedule(config.optim.schedule),
          .lr = config.optim.lr,
          .min_lr = config.optim.min_lr,
          .warmup = config.optim.warmup,
          .decay = config.optim.decay,
          .steps = std::max<int64_t>(config.steps, 1),
          .from_zero = config.conventions == "transformers"};
}

}  // namespace megatrain
