// Commands that make a file megatrain reads of one that it does not, printed to be pasted into a shell.
#pragma once

#include <string>
#include <string_view>

namespace megatrain {

// python3 with `code`, which has no single quotes and finds the two files in sys.argv: no name stands inside code.
std::string python_command(std::string_view code, const std::string& from, const std::string& to);

// `reader` opens sys.argv[1] as a function of pandas: `read_csv(sys.argv[1])`. The result is JSON Lines.
std::string pandas_command(std::string_view reader, const std::string& from, const std::string& to);

// `program` (`gunzip -c`) writes the unpacked file to standard output, whatever the file's name ends in.
std::string unpack_command(std::string_view program, const std::string& from, const std::string& to);

}  // namespace megatrain
