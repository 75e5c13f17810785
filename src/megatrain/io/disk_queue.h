// Moves whole blocks between memory and a scratch file, many pieces at a time. It uses io_uring, or a pool of threads
// if the kernel or a container refuses io_uring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "megatrain/io/scratch_file.h"

namespace megatrain {

enum class DiskQueueKind : uint8_t { any, io_uring, threads };

struct DiskQueueOptions {
  DiskQueueKind kind = DiskQueueKind::any;  // any: io_uring if it works
  // Lets tests inject failures: takes the result of a piece's transfer (bytes or minus errno), returns the one to act
  // on.
  std::function<int64_t(bool write, int64_t offset, int64_t result)> result;
};

// For one thread at a time. Each call returns when all bytes have moved. If it fails, it waits until no piece is in
// flight and throws Error(io), which names the file and the offset. Offset, address and count are multiples of
// kDiskBlock, and the bytes are whole pieces of the file. A piece's checksum is checked or set as soon as the piece has
// moved, while others are still in flight.
class DiskQueue {
 public:
  DiskQueue(ScratchFile& file, DiskQueueOptions options) : file_(file), options_(std::move(options)) {}
  virtual ~DiskQueue() = default;
  DiskQueue(const DiskQueue&) = delete;
  DiskQueue& operator=(const DiskQueue&) = delete;

  virtual const char* name() const = 0;

  void read(int64_t offset, std::byte* data, int64_t bytes) { move_pieces({false, offset, data, bytes}); }
  void write(int64_t offset, const std::byte* data, int64_t bytes) {
    move_pieces({true, offset, const_cast<std::byte*>(data), bytes});  // only read from
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

  Range take_piece(Range& left) const;  // cuts off the first piece

  // Handles the result of transferring `piece` and cuts off the bytes that have moved. Returns 0 to continue with the
  // rest of the piece, if any. Otherwise it returns the errno, kCut if the file ended, or kChanged if the checksum
  // differs.
  static constexpr int kCut = -1, kChanged = -2;
  int settle(Range& piece, int64_t result) const;
  [[noreturn]] void fail_at(const Range& piece, int error) const;

 private:
  void move_pieces(const Range& range);

  ScratchFile& file_;
  DiskQueueOptions options_;
};

// Throws Error(io) if io_uring is requested by name and not available.
std::unique_ptr<DiskQueue> make_disk_queue(ScratchFile& file, const DiskQueueOptions& options = {});

// nullptr if the build has no io_uring or the system refuses it; `why` then says which.
std::unique_ptr<DiskQueue> make_uring_queue(ScratchFile& file, const DiskQueueOptions& options, std::string* why);

}  // namespace megatrain
