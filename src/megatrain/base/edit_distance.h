// How similar two names are, for hints in messages.
#pragma once

#include <cstdint>
#include <string_view>

namespace megatrain {

// The number of letters to add, remove, replace or swap with a neighbour to turn one name into the other.
int64_t edit_distance(std::string_view a, std::string_view b);

// The largest distance at which a known name is still suggested for a mistyped name of this length.
int64_t most_typing_errors(std::string_view name);

}  // namespace megatrain
