// A file without a name, for state that lives on disk while a process runs. It loses its name before the first byte is
// written, so a process that is killed leaves nothing behind; what must last is the checkpoint's business. Whatever is
// read from it is checked against what was written.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "megatrain/io/file.h"
#include "megatrain/io/scratch_sums.h"

namespace megatrain {

// Offsets, lengths and addresses of transfers past the page cache are multiples of it.
inline constexpr int64_t kDiskBlock = 4096;

struct ScratchPlace {
  std::string directory;
  bool allow_network = false;  // a network file system is refused otherwise
  // What messages call the directory, and the size asked for.
  const char* directory_key = "memory.nvme_path";
  const char* size_key = "memory.nvme";
};

// Throws Error(bad_config) unless the directory is there, can be written and is on a disk of this machine, and
// Error(cannot_fit) unless `bytes` are free there. Writes nothing that stays.
void check_scratch_place(const ScratchPlace& place, int64_t bytes);
// The part of it that looks at the file system there (io/file_system.h).
void check_scratch_file_system(const ScratchPlace& place, const std::string& type);

int64_t free_scratch_bytes(const std::string& directory);  // 0 when it is not there

// Takes a scratch file's name away. A name that stays is a warning: it keeps its blocks until it is removed.
void remove_scratch_name(const std::string& path);

class ScratchFile {
 public:
  // All of it is allocated, and reads as zeros: a disk that is too full is refused here. Checks the place first. The
  // file has ranges of so many bytes, one after the other; queues move whole ones.
  ScratchFile(const ScratchPlace& place, const std::vector<int64_t>& range_bytes);
  ScratchFile(const ScratchPlace& place, int64_t bytes) : ScratchFile(place, std::vector{bytes}) {}
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return file_.path(); }  // for messages: the file has no name any more
  int64_t bytes() const { return sums_.bytes(); }

  // For whole pieces, which the caller checks, or whose checksums it sets. Transfers pass by the page cache where
  // direct() says so.
  int descriptor() const { return direct_ >= 0 ? direct_ : file_.descriptor(); }
  bool direct() const { return direct_ >= 0; }

  ScratchSums& sums() { return sums_; }
  const ScratchSums& sums() const { return sums_; }
  [[noreturn]] void fail_changed(const ScratchPiece& piece) const;  // Error(io): it came back other than it was written

  // Any bytes, through the page cache. Thread-safe; no transfer of the descriptor may touch the same pieces meanwhile.
  // Throws Error(io) where a piece that holds some of them came back other than it was written.
  void read_at(int64_t offset, void* data, int64_t bytes) const;
  void write_at(int64_t offset, const void* data, int64_t bytes);

 private:
  void read_piece(const ScratchPiece& piece, std::byte* data) const;
  std::mutex& lock_of(const ScratchPiece& piece) const {
    return locks_[static_cast<size_t>(piece.index) % locks_.size()];
  }

  ScratchSums sums_;
  File file_;
  int direct_ = -1;                           // -1: the file system has no O_DIRECT
  mutable std::array<std::mutex, 64> locks_;  // a piece's bytes and its checksum change together
};

}  // namespace megatrain
