// Shell commands that convert a file to one that megatrain reads, printed to be pasted.
#pragma once

#include <string>
#include <string_view>

namespace megatrain {

// Runs `code`, which has no single quotes, in python3. It finds the two files in sys.argv, so no name is part of the
// code.
std::string python_command(std::string_view code, const std::string& from, const std::string& to);

// `reader` is a pandas function that opens sys.argv[1]: `read_csv(sys.argv[1])`. The result is JSON Lines.
std::string pandas_command(std::string_view reader, const std::string& from, const std::string& to);

// `program` (`gunzip -c`) writes the unpacked file to standard output, whatever the file's name ends in.
std::string unpack_command(std::string_view program, const std::string& from, const std::string& to);

}  // namespace megatrain
