// The queue on io_uring: one thread submits pieces and takes their results.
#include <liburing.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/io/disk_queue.h"

namespace megatrain {

namespace {

class UringQueue : public DiskQueue {
 public:
  UringQueue(ScratchFile& file, const DiskQueueOptions& options) : DiskQueue(file, options) {}
  ~UringQueue() override {
    if (open_) ::io_uring_queue_exit(&ring_);
  }

  // 0, or the errno with which the system refuses it.
  int open() {
    const int result = ::io_uring_queue_init(kPieces, &ring_, 0);
    open_ = result == 0;
    return -result;
  }

  const char* name() const override { return "io_uring"; }

 private:
  static constexpr unsigned kPieces = 32;  // in flight at once

  void move(const Range& range) override {
    Range left = range;
    std::vector<unsigned> unused(kPieces);
    for (unsigned i = 0; i < kPieces; ++i) unused[i] = i;
    int error = 0;
    Range failed;
    while ((left.bytes > 0 && error == 0) || unused.size() < kPieces) {
      while (left.bytes > 0 && error == 0 && !unused.empty()) {
        pieces_[unused.back()] = take_piece(left);
        enqueue(unused.back());
        unused.pop_back();
      }
      const unsigned done = wait_for_one();
      Range& piece = pieces_[done];
      const int result = settle(piece, result_);
      if (result != 0 && error == 0) {
        error = result;
        failed = piece;
      }
      if (result == 0 && piece.bytes > 0 && error == 0) {
        enqueue(done);
      } else {
        unused.push_back(done);
      }
    }
    if (error != 0) fail_at(failed, error);
  }

  void enqueue(unsigned which) {
    const Range& piece = pieces_[which];
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);  // never null: no more pieces than entries
    const unsigned bytes = static_cast<unsigned>(piece.bytes);
    const auto offset = static_cast<uint64_t>(piece.offset);
    if (piece.write) {
      ::io_uring_prep_write(entry, descriptor(), piece.data, bytes, offset);
    } else {
      ::io_uring_prep_read(entry, descriptor(), piece.data, bytes, offset);
    }
    ::io_uring_sqe_set_data64(entry, which);
  }

  // Returns a piece that is done, with its result in result_. A call that is interrupted or finds the system busy is
  // repeated: pieces in flight use the caller's memory, so they cannot be abandoned.
  unsigned wait_for_one() {
    io_uring_cqe* entry = nullptr;
    while (::io_uring_peek_cqe(&ring_, &entry) != 0) check(::io_uring_submit_and_wait(&ring_, 1));
    check(::io_uring_submit(&ring_));
    const auto which = static_cast<unsigned>(::io_uring_cqe_get_data64(entry));
    result_ = entry->res;
    ::io_uring_cqe_seen(&ring_, entry);
    return which;
  }

  static void check(int result) {
    if (result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY) return;
    fail_io(std::string("io_uring failed: ") + std::strerror(-result) + "; see the kernel log");
  }

  io_uring ring_{};
  bool open_ = false;
  std::array<Range, kPieces> pieces_;
  int64_t result_ = 0;
};

}  // namespace

std::unique_ptr<DiskQueue> make_uring_queue(ScratchFile& file, const DiskQueueOptions& options, std::string* why) {
  auto queue = std::make_unique<UringQueue>(file, options);
  const int error = queue->open();
  if (error == 0) return queue;
  *why = std::string("the system refused it: ") + std::strerror(error);
  return nullptr;
}

}  // namespace megatrain
