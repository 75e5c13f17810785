// Renames that replace a directory, renames that never replace anything, and files that may be missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

// Puts the directory `fresh` in the place of `path` and returns where the old one is now. If the file system can
// exchange the two in one step, that is `fresh`, otherwise `aside`; empty if there was none. Remove the returned
// directory only after sync_directory() has made the names durable.
std::string replace_directory(const std::string& fresh, const std::string& path, const std::string& aside);

// Renames the file or directory `from` to `to`. Returns false, and changes nothing, if something has that name.
bool rename_to_new(const std::string& from, const std::string& to);

// The same for file systems that cannot do it in one step. A file gets a second name (link) and loses its first. For a
// directory, or without links, an empty one of that name is made and renamed over.
bool rename_to_new_in_steps(const std::string& from, const std::string& to);

// Makes the new name of `path` durable. Its Error(io) says that the written data is there nevertheless.
void sync_new_name(const std::string& path);

// 0, or the errno of the failed sync: why the names in `directory` could not be made durable.
int try_sync_directory(const std::string& directory);

// False if there is no such file. Error(io) if something has that name but cannot be opened or is not a regular file;
// that says nothing about the file's contents.
bool can_read(const std::string& path);

// The text of a file that may be missing. Errors are those of can_read() and read_text_file().
std::optional<std::string> read_text_if_there(const std::string& path, int64_t limit);

}  // namespace megatrain
