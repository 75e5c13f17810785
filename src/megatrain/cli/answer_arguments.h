// The options that say how an answer is drawn, of `generate` and `chat`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/config/arguments.h"
#include "megatrain/generate/sampler.h"

namespace megatrain {

// Throw Error(bad_config) for a value that cannot be, and for one that another makes idle.
Sampling read_sampling(const Arguments& arguments);                  // --temperature, --top-p, --top-k, --seed
std::optional<int64_t> read_max_tokens(const Arguments& arguments);  // --max-tokens
std::vector<std::string> read_stops(const Arguments& arguments);     // --stop

}  // namespace megatrain
