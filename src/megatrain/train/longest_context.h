// How long the sequences of a run can be.
#pragma once

#include <cstdint>

#include "megatrain/train/setup.h"

namespace megatrain {

inline constexpr int64_t kContextGrain = 1024, kMostContext = int64_t{1} << 21;  // tokens

// A sequence with which the run fits the site's budgets, one in a micro-batch and as many a step as the configuration
// has: a multiple of kContextGrain up to kMostContext, whose next multiple does not fit. It is the longest unless
// memory falls again above it, as it does under small budgets where tiles and chunks begin. 0: kContextGrain does not
// fit, or a budget is above the site's limits. A plan that the configuration names is not used.
int64_t longest_context(const TrainConfig& config, const ModelConfig& model, const Site& site,
                        const TensorTypes& stored = {});

}  // namespace megatrain
