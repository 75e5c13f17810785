// What a model says about given tokens, pass by pass, so that memory does not grow with their number times the
// vocabulary.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "megatrain/generate/cached_forward.h"

namespace megatrain {

// Calls `take` with (V), the logits after ids[i], for every i >= first in order. ids (T) must fit the model's context.
// Throws Error(bad_input) for an id outside the vocabulary.
void each_logits(CachedForward& forward, std::span<const int32_t> ids, int64_t first,
                 const std::function<void(int64_t i, std::span<const float> logits)>& take);

// (T - 1) The natural logarithm of the probability of ids[i + 1] after ids[0 … i].
std::vector<float> log_probs(CachedForward& forward, std::span<const int32_t> ids);

}  // namespace megatrain
