// A file without a name, for state that lives on disk while a process runs. It loses its name before the first byte is
// written, so a process that is killed leaves nothing behind; what must last is the checkpoint's business.
#pragma once

#include <cstdint>
#include <string>

#include "megatrain/io/file.h"

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
  // All of it is allocated, and reads as zeros: a disk that is too full is refused here. Checks the place first.
  ScratchFile(const ScratchPlace& place, int64_t bytes);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return file_.path(); }  // for messages: the file has no name any more
  int64_t bytes() const { return bytes_; }

  // For whole blocks. Transfers pass by the page cache where direct() says so.
  int descriptor() const { return direct_ >= 0 ? direct_ : file_.descriptor(); }
  bool direct() const { return direct_ >= 0; }

  // Any range, through the page cache. Thread-safe; no transfer of the descriptor may touch the same blocks meanwhile.
  void read_at(int64_t offset, void* data, int64_t bytes) const { file_.read_at(offset, data, bytes); }
  void write_at(int64_t offset, const void* data, int64_t bytes) const { file_.write_at(offset, data, bytes); }

 private:
  File file_;
  int64_t bytes_;
  int direct_ = -1;  // -1: the file system has no O_DIRECT
};

}  // namespace megatrain
