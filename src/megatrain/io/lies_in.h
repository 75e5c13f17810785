// Whether one path is inside another, by their names alone.
#pragma once

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace megatrain {

// True if `inner` is `outer` or below it. The caller has resolved links and dots; a trailing slash makes no difference.
// Nothing is inside an empty path.
inline bool lies_in(const std::filesystem::path& inner, const std::filesystem::path& outer) {
  if (outer.empty()) return false;
  const auto end = outer.has_filename() ? outer.end() : std::prev(outer.end());
  return std::mismatch(outer.begin(), end, inner.begin(), inner.end()).first == end;
}

}  // namespace megatrain
