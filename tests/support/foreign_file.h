// Files of other trainers as lists of keys, and megatrain's messages about them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "megatrain/config/config.h"
#include "tests/support/llamafactory_examples.h"
#include "tests/support/said.h"

namespace megatrain {

inline TrainConfig parse(const Keys& keys, const std::vector<std::string>& words = {}) {
  return parse_config(yaml_of(keys), "theirs.yaml", words);
}

inline std::string refusal(const Keys& keys, const std::vector<std::string>& words = {}) {
  return refused_with(ExitCode::bad_config, [&] { parse(keys, words); });
}

// The log output for a file that is accepted.
inline std::string logged(const Keys& keys, const std::vector<std::string>& words = {}) {
  return logged_by([&] { parse(keys, words); });
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The method that an example asks for is named, before any unknown keys and without a guess.
template <class Refused>
void expect_method_named(const Refused& example) {
  Keys keys = example.keys;
  keys.insert(keys.begin(), {"a_key_of_nobody", "1"});
  const std::string said = refusal(keys);
  EXPECT_TRUE(has(said, fmt::format("{} asks for {}, which megatrain does not do; ", example.key, example.method)))
      << example.name << ": " << said;
  EXPECT_TRUE(said.starts_with("theirs.yaml:")) << said;
  EXPECT_FALSE(has(said, "did you mean")) << said;
}

}  // namespace megatrain
