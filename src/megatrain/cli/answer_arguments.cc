#include "megatrain/cli/answer_arguments.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/generate/check_sampling.h"

namespace megatrain {

Sampling read_sampling(const Arguments& arguments) {
  Sampling sampling;
  sampling.temperature = arguments.number("--temperature").value_or(0);
  sampling.top_p = arguments.number("--top-p").value_or(1);
  sampling.top_k = arguments.integer("--top-k").value_or(0);
  sampling.seed = static_cast<uint64_t>(arguments.integer("--seed").value_or(0));
  check_sampling(sampling, arguments.option("--top-p") || arguments.option("--top-k"),
                 {.temperature = "--temperature", .top_p = "--top-p", .top_k = "--top-k"});
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
