// Moves whole blocks between memory and a scratch file, many pieces at a time: by io_uring, or by a pool of threads
// where the kernel or a container refuses that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "megatrain/io/scratch_file.h"

namespace megatrain {

enum class DiskQueueKind : uint8_t { any, io_uring, threads };

struct DiskQueueOptions {
  DiskQueueKind kind = DiskQueueKind::any;  // any: io_uring where it works
  // What a transfer of one piece came to, in bytes or as minus errno, before it is acted upon: for tests of failures.
  std::function<int64_t(bool write, int64_t offset, int64_t result)> result;
};

// One thread at a time. Each call returns when all bytes have moved, or throws Error(io) that names the file and the
// offset once no piece is on its way any more. Offset, address and count are multiples of kDiskBlock, and the bytes are
// whole pieces of the file. A piece is checked, or gets its checksum, when it has moved and others are still on their
// way.
class DiskQueue {
 public:
  DiskQueue(ScratchFile& file, DiskQueueOptions options) : file_(file), options_(std::move(options)) {}
  virtual ~DiskQueue() = default;
  DiskQueue(const DiskQueue&) = delete;
  DiskQueue& operator=(const DiskQueue&) = delete;

  virtual const char* name() const = 0;

  void read(int64_t offset, std::byte* data, int64_t bytes) { move_pieces({false, offset, data, bytes}); }
  void write(int64_t offset, const std::byte* data, int64_t bytes) {
    move_pieces({true, offset, const_cast<std::byte*>(data), bytes});  // only read
  }

 protected:
  struct Range {
    bool write = false;
    int64_t offset = 0;
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  virtual void move(const Range& range) = 0;

  int descriptor() const { return file_.descriptor(); }

  Range take_piece(Range& left) const;  // cuts the first off

  // Takes what the system said of `piece` and cuts off what has moved. 0: go on with what is left of it, if anything;
  // otherwise the errno it failed with, kCut where the file ended, kChanged where it came back with another checksum.
  static constexpr int kCut = -1, kChanged = -2;
  int settle(Range& piece, int64_t result) const;
  [[noreturn]] void fail_at(const Range& piece, int error) const;

 private:
  void move_pieces(const Range& range);

  ScratchFile& file_;
  DiskQueueOptions options_;
};

// Throws Error(io) where io_uring is asked for by name and cannot be had.
std::unique_ptr<DiskQueue> make_disk_queue(ScratchFile& file, const DiskQueueOptions& options = {});

// nullptr where the build has no io_uring or the system refuses it; `why` then says which.
std::unique_ptr<DiskQueue> make_uring_queue(ScratchFile& file, const DiskQueueOptions& options, std::string* why);

}  // namespace megatrain
