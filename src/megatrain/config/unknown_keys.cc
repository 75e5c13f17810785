#include "megatrain/config/unknown_keys.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/config/config_keys.h"

namespace megatrain {
namespace {

// The nearest key of the file's trainer, or of ours if the file is ours; empty if none is close.
std::string nearest_key(const GivenKeys& given, const std::string& name) {
  const std::string theirs = nearest_foreign_key(*given.trainer, name), ours = nearest_config_key(name);
  if (given.theirs) return theirs;
  return ours.empty() ? theirs : ours;
}

// Empty if there is no hint.
std::string hint(const GivenKeys& given, const std::string& name) {
  if (const ForeignTrainer* owner = given.theirs ? trainer_with_key(name) : nullptr)
    return fmt::format("it is a key of {}", owner->name);
  const std::string near = nearest_key(given, name);
  return near.empty() ? "" : fmt::format("did you mean '{}'?", near);
}

}  // namespace

std::string unknown_sentence(const GivenKeys& given) {
  constexpr const char* kHelp = "`megatrain train --help` lists the keys";
  constexpr size_t kShown = 24;
  const auto& [name, where] = given.unknown.front();
  if (given.unknown.size() == 1) {
    const std::string known = hint(given, name);
    return fmt::format("{}: unknown key '{}'; {}", where, name, known.empty() ? kHelp : known);
  }
  std::vector<std::string> all;
  for (const auto& [key, place] : given.unknown) {
    const std::string known = hint(given, key);
    all.push_back(
        fmt::format("'{}' (line {}{})", key, place.substr(place.rfind(':') + 1), known.empty() ? "" : "; " + known));
  }
  const size_t more = all.size() > kShown ? all.size() - kShown : 0;
  all.resize(all.size() - more);
  return fmt::format("{}: {} unknown keys: {}{}; {}", where, given.unknown.size(), fmt::join(all, ", "),
                     more ? fmt::format(" and {} more", more) : "", kHelp);
}

}  // namespace megatrain
