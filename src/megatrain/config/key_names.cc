#include "megatrain/config/key_names.h"

#include <fmt/format.h>

namespace megatrain {

void KeyNames::add(const std::string& key, const std::string& theirs, bool given) { theirs_[key] = {theirs, given}; }

std::string KeyNames::operator()(const std::string& key) const {
  const auto found = theirs_.find(key);
  return found == theirs_.end() || found->second.name.empty() ? key : fmt::format("{} ({})", found->second.name, key);
}

std::string KeyNames::setting(const std::string& key, const std::string& value) const {
  const auto found = theirs_.find(key);
  const bool named = found != theirs_.end() && !found->second.name.empty();
  return named ? fmt::format("--{}={}", key, value) : fmt::format("{}: {}", key, value);
}

bool KeyNames::is_given_there(const std::string& key) const {
  const auto found = theirs_.find(key);
  return found != theirs_.end() && found->second.given;
}

}  // namespace megatrain
