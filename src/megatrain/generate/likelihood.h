// How likely a model finds a token, whatever the settings of sampling are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace megatrain {

struct LikelyToken {
  int32_t id = 0;
  double log_prob = 0;  // natural logarithm
};

struct Likelihood {
  LikelyToken token;
  std::vector<LikelyToken> top;  // the likeliest tokens, likeliest first; among equals, the lower id goes first
};

// The log-softmax of logits (V) at `id` and at its `top` largest. Throws Error(non_finite) like sample().
Likelihood likelihood(std::span<const float> logits, int32_t id, int64_t top);

}  // namespace megatrain
