// Files by descriptor: owned, mapped, written whole, made durable. Errors carry errno's text and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace megatrain {

// Owns a descriptor.
class File {
 public:
  File() = default;
  // Error(bad_input) if the path leads to no file, Error(io) if it cannot be read.
  static File open_to_read(const std::string& path);
  // Creates the file, or empties an existing one.
  static File create(const std::string& path);
  // Creates the file, or keeps an existing one as it is.
  static File open_to_write(const std::string& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  int64_t bytes() const;  // throws unless it is a regular file

  void read_at(int64_t offset, void* data, int64_t bytes) const;         // thread-safe
  void write_at(int64_t offset, const void* data, int64_t bytes) const;  // thread-safe
  // Sets the file's length. Fails here if the disk is too full.
  void reserve(int64_t bytes) const;
  void truncate(int64_t bytes) const;
  void sync() const;
  void close();

 private:
  std::string path_;
  int descriptor_ = -1;
};

// A lock on a directory that one holder at a time has, across all processes. It ends with the object or the process. It
// locks the directory itself, whatever its name. A directory that does not exist can always be locked, and is_at() is
// false for every path.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  bool try_lock();
  bool is_at(const std::string& path) const;  // the path names this directory now

 private:
  std::string directory_;
  int descriptor_ = -1;
};

struct WatchedMapping;

// A whole file, mapped read-only. A read that fails because the file was truncated ends the process with a message
// (io/mapping_guard.h).
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return file_.path(); }
  const std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // Throws Error(io) if the file is shorter than when it was mapped. The cut part of its last page reads as zeros
  // without a fault, so call this after reading bytes that decide something.
  void check_whole() const;

 private:
  File file_;
  const std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  WatchedMapping* watched_ = nullptr;
};

// A path under construction: once created it is removed, with everything below it, unless kept.
class PartialPath {
 public:
  explicit PartialPath(std::string path) : path_(std::move(path)) {}
  ~PartialPath() { remove(); }
  PartialPath(const PartialPath&) = delete;
  PartialPath& operator=(const PartialPath&) = delete;

  const std::string& path() const { return path_; }
  void created() { ours_ = true; }
  void keep() { ours_ = false; }
  // Renames it to `path`, durable when this returns. The caller has synced its contents.
  void put_at(const std::string& path);
  void remove() noexcept;

 private:
  std::string path_;
  bool ours_ = false;
};

// Reads at most `limit` bytes; a longer file is Error(bad_input).
std::string read_text_file(const std::string& path, int64_t limit);

// All or nothing: the text is written and synced as NAME.PID-N.partial in the same directory, then renamed. It is
// durable when this returns.
void write_text_file(const std::string& path, std::string_view text);

// Makes names (created, renamed, removed) in `directory` durable.
void sync_directory(const std::string& directory);

void rename_path(const std::string& from, const std::string& to);

// "." for a bare name.
std::string parent_directory(const std::string& path);

// What to do about an errno; completes a message "...: what it means; ".
const char* errno_advice(int error);

// Prepares text for a message: quotes it, escapes control characters, shortens long text.
std::string printable(std::string_view text);

}  // namespace megatrain
