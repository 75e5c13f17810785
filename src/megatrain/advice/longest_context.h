// How long the sequences of a run can be.
#pragma once

#include <cstdint>

#include "megatrain/train/setup.h"

namespace megatrain {

inline constexpr int64_t kContextGrain = 1024;  // tokens

// The longest sequence with which the run fits the site's budgets, one in a micro-batch and as many a step as the
// configuration has: of the multiples of kContextGrain that a configuration may have (kMostContext, and kMostParts of
// its chunks) the largest that fits. Shorter ones need not all fit: memory falls where tiles of attention and chunks of
// blocks begin. 0: none fits, or a budget is above the site's limits. A plan that the configuration names is not used.
int64_t longest_context(const TrainConfig& config, const ModelConfig& model, const Site& site,
                        const TensorTypes& stored = {});

}  // namespace megatrain
