// An unnamed file for state that lives on disk while a process runs. Its name is removed before the first byte is
// written, so a killed process leaves nothing behind. State that must survive goes into checkpoints. Everything read
// back is checked against what was written.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "megatrain/io/file.h"
#include "megatrain/io/scratch_sums.h"

namespace megatrain {

// Offsets, lengths and addresses of direct transfers (O_DIRECT) are multiples of this.
inline constexpr int64_t kDiskBlock = 4096;

struct ScratchPlace {
  std::string directory;
  bool allow_network = false;  // otherwise network file systems are refused
  // How messages name the directory and the requested size.
  const char* directory_key = "memory.nvme_path";
  const char* size_key = "memory.nvme";
};

// Throws Error(bad_config) unless the directory exists, is writable and is on a local disk, and Error(cannot_fit)
// unless `bytes` are free there. Leaves nothing behind.
void check_scratch_place(const ScratchPlace& place, int64_t bytes);
// The part of that check that looks at the file system type (io/file_system.h).
void check_scratch_file_system(const ScratchPlace& place, const std::string& type);

int64_t free_scratch_bytes(const std::string& directory);  // 0 if it does not exist

// Removes the name of a scratch file. If that fails it warns: the file keeps its blocks until it is removed.
void remove_scratch_name(const std::string& path);

class ScratchFile {
 public:
  // Checks the place, then allocates all of the file, so that a disk that is too full is refused here. It reads as
  // zeros. The file consists of consecutive ranges of these sizes; queues move whole pieces of them.
  ScratchFile(const ScratchPlace& place, const std::vector<int64_t>& range_bytes);
  ScratchFile(const ScratchPlace& place, int64_t bytes) : ScratchFile(place, std::vector{bytes}) {}
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return file_.path(); }  // for messages: the file has no name any more
  int64_t bytes() const { return sums_.bytes(); }

  // For transfers of whole pieces, whose checksums the caller checks or sets. They bypass the page cache if direct().
  int descriptor() const { return direct_ >= 0 ? direct_ : file_.descriptor(); }
  bool direct() const { return direct_ >= 0; }

  ScratchSums& sums() { return sums_; }
  const ScratchSums& sums() const { return sums_; }
  // Throws Error(io): the piece read back differs from what was written.
  [[noreturn]] void fail_changed(const ScratchPiece& piece) const;

  // For any bytes, through the page cache. Thread-safe, but no transfer through descriptor() may touch the same pieces
  // at the same time. Throws Error(io) if a piece that overlaps them differs from what was written.
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
  mutable std::array<std::mutex, 64> locks_;  // keep a piece's bytes and checksum consistent
};

}  // namespace megatrain
