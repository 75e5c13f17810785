// Lists of names in messages.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace megatrain {

// "a, b, ... (12 in all)"
inline std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown));
  return fmt::format("{}{}", fmt::join(names.begin(), end, ", "),
                     end == names.end() ? "" : fmt::format(", ... ({} in all)", names.size()));
}

}  // namespace megatrain
