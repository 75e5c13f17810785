// From logits to the next token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace megatrain {

struct Sampling {
  double temperature = 0;  // 0: the most likely token
  double top_p = 1;        // of the likeliest tokens that hold this much probability together
  int64_t top_k = 0;       // of so many likeliest tokens; 0: of all
  uint64_t seed = 0;
};

struct Candidate {
  int32_t id;
  double probability;
};

// The tokens that may be drawn and how likely each is: softmax of logits / temperature (> 0), cut to the top_k
// likeliest, then to the fewest of those that hold top_p of what was left. Of equals, the lower id goes first.
std::vector<Candidate> candidates(std::span<const float> logits, const Sampling& sampling);

// The token at `position` of a sequence. What is drawn is a function of (seed, sequence, position) and the logits.
// Throws Error(non_finite) when a logit is not a number.
int32_t sample(std::span<const float> logits, const Sampling& sampling, uint64_t sequence, int64_t position);

}  // namespace megatrain
