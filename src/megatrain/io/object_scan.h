// The members of a JSON object on one line, without building the object: for files of hundreds of thousands of lines of
// which a few figures each are needed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace megatrain {

// Sets values[i] to the text of the member keys[i] of the object as it stands in `line`, empty where it has none.
//
// True only for what any JSON parser reads in the same way. False says nothing against the line: it may hold escapes,
// bytes beyond ASCII, a key twice, or numbers at the edge of what a double holds. The parser then has to be asked.
bool scan_object(std::string_view line, std::span<const std::string_view> keys, std::span<std::string_view> values);

// Of such a value; none where it is of another kind, or is at the edge of what the type holds.
std::optional<int64_t> scanned_integer(std::string_view value);
std::optional<double> scanned_number(std::string_view value);
std::optional<std::string_view> scanned_text(std::string_view value);

}  // namespace megatrain
