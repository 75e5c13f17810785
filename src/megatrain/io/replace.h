// Directories that take the place of others, and files that may be missing.
#pragma once

#include <string>

namespace megatrain {

// Puts the directory `fresh` in the place of `path` and returns where the former one is now: under the name `fresh`,
// both exchanged in one step, or under `aside` where the file system cannot exchange. Empty: there was none. What is
// returned may be removed once sync_directory() has made the names durable, not before.
std::string replace_directory(const std::string& fresh, const std::string& path, const std::string& aside);

// False when there is no such file. Error(io) when there is one that cannot be opened, which says nothing of what it
// holds.
bool can_read(const std::string& path);

}  // namespace megatrain
