// JSON with errors a person can act on: the file, the line, what to do. Duplicate keys are refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "megatrain/base/units.h"
#include "megatrain/io/json.h"

namespace megatrain {

// Strict JSON: no comments, no duplicate keys, nothing after the value, at most 64 levels. Throws Error(bad_input).
// `where` names the text ("DIR/config.json"), and `advice` ends the sentence.
//
// Python writes numbers that JSON lacks as Infinity, -Infinity and NaN. They become what transformers 5 writes instead:
// {"__float__": "Infinity"}.
nlohmann::json parse_json(std::string_view text, const std::string& where, const std::string& advice);

constexpr int64_t kMaxJsonFileBytes = 256 * kMiB;  // longer files are refused

nlohmann::json read_json_file(const std::string& path);

}  // namespace megatrain
