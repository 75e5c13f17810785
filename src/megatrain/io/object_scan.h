// Reads members of a one-line JSON object without building the object. For files of hundreds of thousands of lines
// where only a few values per line are needed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace megatrain {

// Sets values[i] to the text of the member keys[i] as written in `line`, or to empty if the object has none.
//
// Returns true only if every JSON parser would read the line the same way. False does not mean that the line is
// malformed: it may hold escapes, bytes beyond ASCII, a duplicate key, or numbers at the edge of what a double holds.
// Use the parser then.
bool scan_object(std::string_view line, std::span<const std::string_view> keys, std::span<std::string_view> values);

// The value of such a text; empty if it is of another kind, or at the edge of what the type holds.
std::optional<int64_t> scanned_integer(std::string_view value);
std::optional<double> scanned_number(std::string_view value);
std::optional<std::string_view> scanned_text(std::string_view value);

}  // namespace megatrain
