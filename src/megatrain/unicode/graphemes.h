// Extended grapheme clusters (UAX #29), in the Unicode version that the `tokenizers` library uses.
#pragma once

#include <cstddef>
#include <string_view>

namespace megatrain {

// The end of the cluster that starts at byte `begin`, which must be in the text and itself a boundary.
size_t grapheme_end(std::string_view text, size_t begin);

}  // namespace megatrain
