// What takes the place of others, what takes that of nothing, and files that may be missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

// Puts the directory `fresh` in the place of `path` and returns where the former one is now: under the name `fresh`,
// both exchanged in one step, or under `aside` where the file system cannot exchange. Empty: there was none. What is
// returned may be removed once sync_directory() has made the names durable, not before.
std::string replace_directory(const std::string& fresh, const std::string& path, const std::string& aside);

// Gives the file or directory `from` the name `to`. False where something has that name, which is left as it is.
bool rename_to_new(const std::string& from, const std::string& to);

// The same where the file system cannot do it in one step: a file gets a second name (link) and loses its first; where
// there are no links, and for a directory, an empty one of that name is made and renamed over.
bool rename_to_new_in_steps(const std::string& from, const std::string& to);

// Makes the name that `path` has just got durable. Error(io) says that what was written is there all the same.
void sync_new_name(const std::string& path);

// 0, or why the names in `directory` could not be made durable, an errno.
int try_sync_directory(const std::string& directory);

// False when there is no such file. Error(io) when there is something of that name that cannot be opened, or that is no
// regular file, which says nothing of what the file holds.
bool can_read(const std::string& path);

// The text of a file that may be missing; as can_read() and read_text_file() otherwise.
std::optional<std::string> read_text_if_there(const std::string& path, int64_t limit);

}  // namespace megatrain
