#include "megatrain/cli/answer_arguments.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

Sampling read_sampling(const Arguments& arguments) {
  Sampling sampling;
  sampling.temperature = arguments.number("--temperature").value_or(0);
  sampling.top_p = arguments.number("--top-p").value_or(1);
  sampling.top_k = arguments.integer("--top-k").value_or(0);
  sampling.seed = static_cast<uint64_t>(arguments.integer("--seed").value_or(0));
  if (sampling.temperature < 0)
    fail_config(fmt::format("--temperature is {}; expected 0 or more", sampling.temperature));
  if (sampling.top_p <= 0 || sampling.top_p > 1)
    fail_config(fmt::format("--top-p is {}; expected more than 0 and at most 1", sampling.top_p));
  if (sampling.top_k < 0) fail_config(fmt::format("--top-k is {}; expected 0 or more", sampling.top_k));
  if (sampling.temperature == 0 && (arguments.option("--top-p") || arguments.option("--top-k"))) {
    fail_config(
        "--top-p and --top-k only affect sampling, and --temperature 0 (the default) does not sample; add "
        "--temperature 1");
  }
  return sampling;
}

std::optional<int64_t> read_max_tokens(const Arguments& arguments) {
  const std::optional<int64_t> tokens = arguments.integer("--max-tokens");
  if (tokens && *tokens < 1) fail_config(fmt::format("--max-tokens is {}; expected 1 or more", *tokens));
  return tokens;
}

std::vector<std::string> read_stops(const Arguments& arguments) {
  const std::vector<std::string> stops = arguments.all("--stop");
  for (const std::string& stop : stops) {
    if (stop.empty()) fail_config("--stop is empty; expected the text before which an answer ends");
  }
  return stops;
}

}  // namespace megatrain
