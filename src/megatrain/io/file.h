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
  // Error(bad_input) when the path leads to no file, Error(io) when it cannot be read.
  static File open_to_read(const std::string& path);
  // Created, or emptied when it is there.
  static File create(const std::string& path);
  // Created, or kept as it is.
  static File open_to_write(const std::string& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  int64_t bytes() const;  // refuses what is not a regular file

  void read_at(int64_t offset, void* data, int64_t bytes) const;         // thread-safe
  void write_at(int64_t offset, const void* data, int64_t bytes) const;  // thread-safe
  void reserve(int64_t bytes) const;  // the file's length from now on; fails here when the disk is too full
  void truncate(int64_t bytes) const;
  void sync() const;
  void close();

 private:
  std::string path_;
  int descriptor_ = -1;
};

// Held by one at a time, of all processes: a lock on a directory, given up with the object or the process. It is of the
// directory itself, under whatever name; one that is not there is locked at once, and stands nowhere.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  bool try_lock();
  bool is_at(const std::string& path) const;  // the directory stands there now

 private:
  std::string directory_;
  int descriptor_ = -1;
};

struct WatchedMapping;

// A whole file, read-only. A read that fails, because the file was cut under it, ends the process with a sentence
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

  // Error(io) where the file is shorter than when it was mapped: what was cut off its last page reads as zeros, without
  // a fault. To be called after bytes were read that decide something.
  void check_whole() const;

 private:
  File file_;
  const std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  WatchedMapping* watched_ = nullptr;
};

// A path under construction: once created it is removed, with all below it, unless kept.
class PartialPath {
 public:
  explicit PartialPath(std::string path) : path_(std::move(path)) {}
  ~PartialPath() { remove(); }
  PartialPath(const PartialPath&) = delete;
  PartialPath& operator=(const PartialPath&) = delete;

  const std::string& path() const { return path_; }
  void created() { ours_ = true; }
  void keep() { ours_ = false; }
  // Keeps it under the name `path`, durable when this returns. What lies in it was synced before.
  void put_at(const std::string& path);
  void remove() noexcept;

 private:
  std::string path_;
  bool ours_ = false;
};

// At most `limit` bytes; a longer file is Error(bad_input).
std::string read_text_file(const std::string& path, int64_t limit);

// All or nothing: written and synced as NAME.PID-N.partial beside it, renamed, and durable when this returns.
void write_text_file(const std::string& path, std::string_view text);

// Makes names (created, renamed, removed) in `directory` durable.
void sync_directory(const std::string& directory);

void rename_path(const std::string& from, const std::string& to);

// "." for a bare name.
std::string parent_directory(const std::string& path);

// What to do about an errno: completes "...: what it means; ".
const char* errno_advice(int error);

// Text fit for a message: quoted, control characters escaped, long text cut.
std::string printable(std::string_view text);

}  // namespace megatrain
