// Refuses settings of sampling that no draw can obey.
#pragma once

#include "megatrain/generate/sampler.h"

namespace megatrain {

// What the caller calls the settings: "--top-p", "top_p".
struct SamplingNames {
  const char *temperature, *top_p, *top_k;
};

// Throws Error(bad_config) for a value out of range, and for a cut (top_p or top_k was given) where nothing is drawn.
void check_sampling(const Sampling& sampling, bool has_cut, const SamplingNames& names);

}  // namespace megatrain
