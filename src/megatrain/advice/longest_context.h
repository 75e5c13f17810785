// Finds the longest sequence that a run can train on.
#pragma once

#include <cstdint>

#include "megatrain/train/setup.h"

namespace megatrain {

inline constexpr int64_t kContextGrain = 1024;  // tokens

// The longest sequence with which the run fits the machine's budgets, with one sequence per micro-batch and the
// configured number per step. It is a multiple of kContextGrain, at most kMostContext and kMostParts chunks. Some
// shorter lengths may not fit: memory drops where tiles of attention and chunks of blocks begin. 0 if none fits, or if
// a budget is above the machine's limits. A plan that the configuration names is not used.
int64_t longest_context(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                        const TensorTypes& stored = {});

}  // namespace megatrain
