// Whether one path lies in another, by their names.
#pragma once

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace megatrain {

// `inner` is `outer` or lies below it. Links and dots are resolved before; a final slash says nothing. Nothing lies in
// an empty path.
inline bool lies_in(const std::filesystem::path& inner, const std::filesystem::path& outer) {
  if (outer.empty()) return false;
  const auto end = outer.has_filename() ? outer.end() : std::prev(outer.end());
  return std::mismatch(outer.begin(), end, inner.begin(), inner.end()).first == end;
}

}  // namespace megatrain
