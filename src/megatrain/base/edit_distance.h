// How near two names are, for hints in messages.
#pragma once

#include <cstdint>
#include <string_view>

namespace megatrain {

// Letters to add, remove, replace or swap with their neighbour.
int64_t edit_distance(std::string_view a, std::string_view b);

// Above this distance a known name is no guess at what was meant by a name of this length.
int64_t most_typing_errors(std::string_view name);

}  // namespace megatrain
