// The size of a step where a user names a model and no batch: large enough to hide what does not grow with its tokens.
#pragma once

#include <cstdint>

#include "megatrain/train/setup.h"

namespace megatrain {

inline constexpr int64_t kMostHidingTokens = 1 << 17;  // per step: more does not help where the link or compute bounds
inline constexpr int64_t kMicroTokens = 8192;          // per micro-batch, unless a sequence is longer

// Which parts of the step are not the user's choice.
struct FreeStep {
  bool batch = false;
  bool micro_batch = false;
  bool any() const { return batch || micro_batch; }
};

// The batch, a power of two, whose compute hides the host's update, or with adapters the weights on their way to the
// device. It has at least `least_tokens`, and at most kMostHidingTokens.
int64_t hiding_batch(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                     const TensorTypes& stored, int64_t least_tokens = 0);

// The largest power of two that divides the batch and has at most `micro_tokens` tokens; at least 1.
int64_t even_micro_batch(int64_t batch, int64_t seq_len, int64_t micro_tokens);

// The configuration with a realistic step: what is free of the batch and the micro-batch is chosen. A micro-batch has
// kMicroTokens, or one sequence if the run does not fit otherwise; if it still does not, the batch is one sequence.
TrainConfig with_realistic_step(TrainConfig config, const ModelConfig& model, const PlannedMachine& planned,
                                const TensorTypes& stored, const FreeStep& free);

}  // namespace megatrain
