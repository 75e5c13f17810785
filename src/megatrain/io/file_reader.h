// Reads ranges of ordinary files past the page cache, many at a time. For files that are read over and over, such as
// weights that do not fit in memory: other processes may read them too, and none may change them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "megatrain/io/file.h"

namespace megatrain {

// The most bytes that callers should ask for in one range: large enough for a drive's full rate.
inline constexpr int64_t kFileRangeBytes = int64_t{1} << 20;

struct FileRange {
  int64_t file = 0;  // index of its path
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Which file a path leads to, and in which state.
struct FileIdentity {
  uint64_t device = 0, inode = 0;
  int64_t bytes = 0, seconds = 0, nanoseconds = 0;       // size, and time of the last write, which programs can set
  int64_t changed_seconds = 0, changed_nanoseconds = 0;  // time of the last change of any kind, which they cannot
  bool operator==(const FileIdentity&) const = default;
};

struct FileReaderOptions {
  int threads = 24;    // reads in flight, less those whose bytes are being used
  bool direct = true;  // false: through the page cache
  // Lets tests inject failures: takes the result of a read (bytes or minus errno), returns the one to act on.
  std::function<int64_t(int64_t offset, int64_t result)> result;
};

class FileReader {
 public:
  // Opens the files and notes which they are. Throws Error(bad_input) for a path that leads to no file.
  explicit FileReader(const std::vector<std::string>& paths, FileReaderOptions options = {});
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // Calls put(index, data) with the bytes of every range, from several threads and in any order. Returns when all are
  // done; the first exception of a put ends it. One caller at a time, others wait. Throws Error(io), naming the file,
  // if a range cannot be read, and if a file is not the one that was opened: another size, time of change or inode.
  //
  // `next`: the ranges of the next call. Threads that find no range left of this call fetch these ahead, one each, so
  // that the drive is not idle between two calls. If the next call has other ranges, what was fetched is dropped. They
  // must live until then.
  using Put = std::function<void(int64_t index, const std::byte* data)>;
  void read(std::span<const FileRange> ranges, const Put& put, std::span<const FileRange> next = {});

  int64_t bytes(int64_t file) const { return files_[static_cast<size_t>(file)].identity.bytes; }
  bool direct() const;  // whether all files are read past the page cache

 private:
  struct OpenFile {
    File file;
    int descriptor = -1;  // past the page cache; -1: the file system has no O_DIRECT
    FileIdentity identity;
  };
  class Block;

  // Ranges that are fetched before the call that asks for them.
  struct Ahead {
    enum class State : uint8_t { awaited, called, dropped };
    std::span<const FileRange> ranges;
    int64_t taken = 0;  // the first ones, by a thread each
    State state = State::awaited;
  };

  void open(const std::string& path);
  void close_all() noexcept;
  void check_unchanged(const OpenFile& file) const;
  bool has_ahead() const;
  void begin(std::span<const FileRange> ranges, const Put& put, std::span<const FileRange> next);
  void work();
  void work_ahead(std::unique_lock<std::mutex>& lock, Block& block);
  void finish(const std::exception_ptr& error);
  const std::byte* fetch(const FileRange& range, Block& block) const;

  FileReaderOptions options_;
  std::vector<OpenFile> files_;
  std::mutex call_mutex_;  // held by the caller whose ranges are read

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_, done_;
  std::span<const FileRange> ranges_;
  const Put* put_ = nullptr;
  int64_t next_ = 0, busy_ = 0;  // the first range that no thread has; threads that have one
  std::shared_ptr<Ahead> ahead_;
  std::exception_ptr failed_;  // the first
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace megatrain
