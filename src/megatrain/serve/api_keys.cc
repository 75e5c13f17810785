#include "megatrain/serve/api_keys.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"

namespace megatrain {

namespace {

// Compares every byte, so that the time does not tell how many were right.
bool same(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key[i % key.size()]);
  return difference == 0;
}

}  // namespace

ApiKeys ApiKeys::read(const std::string& file) {
  constexpr int64_t kMostBytes = 1 << 20;
  ApiKeys keys;
  std::istringstream lines(read_text_file(file, kMostBytes));
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (std::ranges::any_of(line, [](char c) { return c <= ' ' || c > '~'; }))
      fail_config(
          fmt::format("{}:{}: a key has a blank or a character that no header can hold; give a key a line, "
                      "of printed ASCII characters",
                      file, number));
    keys.keys_.push_back(line);
  }
  if (!keys.any())
    fail_config(fmt::format("{} has no key; give a key a line, such as the output of: openssl rand -hex 32", file));
  return keys;
}

bool ApiKeys::allow(std::string_view authorization) const {
  if (!any()) return true;
  constexpr std::string_view kScheme = "bearer ";
  const bool bearer = authorization.size() > kScheme.size() &&
                      std::ranges::equal(authorization.substr(0, kScheme.size()), kScheme, {},
                                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const std::string_view given = bearer ? authorization.substr(kScheme.size()) : std::string_view();
  bool found = false;
  for (const std::string& key : keys_) found |= same(given, key);
  return found;
}

}  // namespace megatrain
