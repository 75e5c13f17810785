#include "megatrain/io/disk_queue.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

void DiskQueue::move_pieces(const Range& range) {
  if (range.bytes == 0) return;
  ensure(file_.sums().piece_at(range.offset).offset == range.offset &&
             file_.sums().piece_at(range.offset + range.bytes - 1).end() == range.offset + range.bytes,
         "a queue moves whole pieces of the scratch file");
  move(range);
}

DiskQueue::Range DiskQueue::take_piece(Range& left) const {
  Range piece = left;
  piece.bytes = file_.sums().piece_at(left.offset).bytes;
  left.offset += piece.bytes;
  left.data += piece.bytes;
  left.bytes -= piece.bytes;
  return piece;
}

int DiskQueue::settle(Range& piece, int64_t result) const {
  if (options_.result) result = options_.result(piece.write, piece.offset, result);
  if (result == -EINTR || result == -EAGAIN) return 0;
  if (result < 0) return static_cast<int>(-result);
  // The rest has to start at a block boundary, so the bytes past the last whole block are transferred again.
  const int64_t moved = result == piece.bytes ? result : result / kDiskBlock * kDiskBlock;
  if (moved == 0) return kCut;
  piece.offset += moved;
  piece.data += moved;
  piece.bytes -= moved;
  if (piece.bytes > 0) return 0;
  const ScratchPiece whole = file_.sums().piece_at(piece.offset - 1);
  const std::byte* data = piece.data - whole.bytes;
  if (piece.write) {
    file_.sums().set(whole, data);
  } else if (!file_.sums().match(whole, data)) {
    return kChanged;
  }
  return 0;
}

void DiskQueue::fail_at(const Range& piece, int error) const {
  if (error == kChanged) file_.fail_changed(file_.sums().piece_at(piece.offset - 1));
  fail_io(fmt::format("cannot {} {} bytes at byte {} of {}: {}; {}", piece.write ? "write" : "read", piece.bytes,
                      piece.offset, file_.path(), error == kCut ? "the file ends before them" : std::strerror(error),
                      error == kCut ? "let no other program change the file" : errno_advice(error)));
}

namespace {

class ThreadQueue : public DiskQueue {
 public:
  ThreadQueue(ScratchFile& file, const DiskQueueOptions& options) : ThreadQueue(Idle{file, options}) {
    constexpr int kThreads = 8;
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~ThreadQueue() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  const char* name() const override { return "threads"; }

 private:
  // The base is complete before threads are started. If one of them cannot be started, the destructor joins the others.
  struct Idle {
    ScratchFile& file;
    const DiskQueueOptions& options;
  };
  explicit ThreadQueue(const Idle& idle) : DiskQueue(idle.file, idle.options) {}

  void move(const Range& range) override {
    std::unique_lock lock(mutex_);
    left_ = range;
    error_ = 0;
    changed_.notify_all();
    done_.wait(lock, [this] { return left_.bytes == 0 && busy_ == 0; });
    if (error_ != 0) fail_at(failed_, error_);
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || left_.bytes > 0; });
      if (stopping_) return;
      Range piece = take_piece(left_);
      ++busy_;
      lock.unlock();
      const int error = transfer(piece);
      lock.lock();
      --busy_;
      if (error != 0) {
        if (error_ == 0) {
          error_ = error;
          failed_ = piece;
        }
        left_.bytes = 0;  // start no more pieces
      }
      if (left_.bytes == 0 && busy_ == 0) done_.notify_one();
    }
  }

  int transfer(Range& piece) const {
    int error = 0;
    while (piece.bytes > 0 && error == 0) {
      const size_t bytes = static_cast<size_t>(piece.bytes);
      const ssize_t moved = piece.write ? ::pwrite(descriptor(), piece.data, bytes, piece.offset)
                                        : ::pread(descriptor(), piece.data, bytes, piece.offset);
      error = settle(piece, moved < 0 ? -errno : moved);
    }
    return error;
  }

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_, done_;
  Range left_;  // what no thread has taken yet of the current call
  int busy_ = 0;
  int error_ = 0;  // the first
  Range failed_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace

std::unique_ptr<DiskQueue> make_disk_queue(ScratchFile& file, const DiskQueueOptions& options) {
  std::string why;
  if (options.kind != DiskQueueKind::threads) {
    if (auto queue = make_uring_queue(file, options, &why)) return queue;
  }
  if (options.kind == DiskQueueKind::io_uring) fail_io("io_uring cannot be used: " + why);
  return std::make_unique<ThreadQueue>(file, options);
}

}  // namespace megatrain
