// Chooses the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "megatrain/grammar/token_set.h"

namespace megatrain {

struct Sampling {
  double temperature = 0;  // 0: the most likely token
  double top_p = 1;        // sample from the likeliest tokens that together have this probability
  int64_t top_k = 0;       // sample from this many likeliest tokens; 0: all
  uint64_t seed = 0;
};

struct Candidate {
  int32_t id;
  double probability;
};

// The tokens that may be drawn, with their probabilities. These are the softmax of logits / temperature (> 0), cut to
// the top_k likeliest, renormalised, then cut to the fewest that together reach top_p. Among equals, the lower id goes
// first.
std::vector<Candidate> candidates(std::span<const float> logits, const Sampling& sampling);

// The token at `position` of a sequence. The draw is a function of (seed, sequence, position) and the logits. Throws
// Error(non_finite) when a logit is NaN or the largest is infinite.
int32_t sample(std::span<const float> logits, const Sampling& sampling, uint64_t sequence, int64_t position);
// The same among the tokens of a set that is not empty; the others count as impossible.
int32_t sample(std::span<const float> logits, const Sampling& sampling, uint64_t sequence, int64_t position,
               const TokenSet& allowed);

}  // namespace megatrain
