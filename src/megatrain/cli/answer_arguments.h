// Sampling options, shared by `generate` and `chat`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/config/arguments.h"
#include "megatrain/generate/sampler.h"

namespace megatrain {

// These throw Error(bad_config) for an invalid value and for one that another option makes ineffective.
Sampling read_sampling(const Arguments& arguments);                  // --temperature, --top-p, --top-k, --seed
std::optional<int64_t> read_max_tokens(const Arguments& arguments);  // --max-tokens
std::vector<std::string> read_stops(const Arguments& arguments);     // --stop

}  // namespace megatrain
