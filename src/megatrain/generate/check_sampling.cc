#include "megatrain/generate/check_sampling.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

void check_sampling(const Sampling& sampling, bool has_cut, const SamplingNames& names) {
  if (!(sampling.temperature >= 0))
    fail_config(fmt::format("{} is {}; expected 0 or more", names.temperature, sampling.temperature));
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    fail_config(fmt::format("{} is {}; expected more than 0 and at most 1", names.top_p, sampling.top_p));
  if (sampling.top_k < 0) fail_config(fmt::format("{} is {}; expected 0 or more", names.top_k, sampling.top_k));
  if (sampling.temperature == 0 && has_cut)
    fail_config(fmt::format("{0} and {1} only affect sampling, and {2} 0 (the default) does not sample; add {2} 1",
                            names.top_p, names.top_k, names.temperature));
}

}  // namespace megatrain
