// Whether a list of names has this one.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

namespace megatrain {

// The names may be literals, views or strings.
template <class List>
bool among(const List& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace megatrain
