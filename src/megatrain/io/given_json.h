// JSON files that a person names on the command line or in a configuration.
#pragma once

#include <string>

#include "megatrain/io/json.h"

namespace megatrain {

// Malformed JSON in such a file is a usage mistake: Error(bad_config). `expected` says what the file must be and ends
// the sentence. A missing or unreadable file fails as in read_text_file.
nlohmann::json read_given_json(const std::string& path, const std::string& expected);

}  // namespace megatrain
