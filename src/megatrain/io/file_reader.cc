#include "megatrain/io/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"

namespace megatrain {

namespace {

constexpr int64_t kAlignment = 4096;  // of offset, size and memory of a direct read

FileIdentity identity_of(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .bytes = status.st_size,
          .seconds = status.st_mtim.tv_sec,
          .nanoseconds = status.st_mtim.tv_nsec,
          .changed_seconds = status.st_ctim.tv_sec,
          .changed_nanoseconds = status.st_ctim.tv_nsec};
}

}  // namespace

// Aligned memory that grows to the largest range.
class FileReader::Block {
 public:
  std::byte* hold(int64_t bytes) {
    if (bytes > bytes_) {
      bytes_ = round_up(std::max(bytes, kFileRangeBytes + 2 * kAlignment), kAlignment);
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(bytes_))));
      if (!memory_) fail(ExitCode::cannot_fit, fmt::format("could not allocate {}", format_bytes(bytes_)));
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  int64_t bytes_ = 0;
};

FileReader::FileReader(const std::vector<std::string>& paths, FileReaderOptions options)
    : options_(std::move(options)) {
  files_.reserve(paths.size());
  try {
    for (const std::string& path : paths) open(path);
    for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    close_all();
    throw;
  }
}

void FileReader::open(const std::string& path) {
  OpenFile& file = files_.emplace_back(OpenFile{.file = File::open_to_read(path)});
  struct stat status {};
  if (::fstat(file.file.descriptor(), &status) != 0)
    fail_io(fmt::format("cannot read the size of {}: {}; {}.", path, std::strerror(errno), errno_advice(errno)));
  file.identity = identity_of(status);
  if (!options_.direct) return;
  file.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (file.descriptor < 0) return;
  // Some file systems open a file with O_DIRECT and then refuse every transfer.
  Block block;
  if (::pread(file.descriptor, block.hold(kAlignment), kAlignment, 0) < 0) ::close(std::exchange(file.descriptor, -1));
}

void FileReader::close_all() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (OpenFile& file : files_) {
    if (file.descriptor >= 0) ::close(file.descriptor);
  }
}

FileReader::~FileReader() { close_all(); }

bool FileReader::direct() const {
  return std::ranges::all_of(files_, [](const OpenFile& file) { return file.descriptor >= 0; });
}

void FileReader::check_unchanged(const OpenFile& file) const {
  const std::string& path = file.file.path();
  struct stat status {};
  std::string what;
  if (::stat(path.c_str(), &status) != 0) {
    what = fmt::format("can no longer be opened ({})", std::strerror(errno));
  } else if (const FileIdentity now = identity_of(status); now == file.identity) {
    return;
  } else if (now.bytes != file.identity.bytes) {
    what = fmt::format("had {} bytes and now has {}", file.identity.bytes, now.bytes);
  } else if (now.inode != file.identity.inode || now.device != file.identity.device) {
    what = "was replaced by another file";
  } else if (now.seconds != file.identity.seconds || now.nanoseconds != file.identity.nanoseconds) {
    what = "was written to";
  } else {  // a write may set the time of the last change back
    what = "was written to, or got another mode, owner or link";
  }
  fail_io(
      fmt::format("{} {}. This run reads weights from that file in every step, so it must stay as it was: restore it, "
                  "then resume",
                  path, what));
}

void FileReader::read(std::span<const FileRange> ranges, const Put& put, std::span<const FileRange> next) {
  const std::lock_guard one(call_mutex_);
  std::exception_ptr failed;
  {
    std::unique_lock lock(mutex_);
    begin(ranges, put, next);
    changed_.notify_all();
    done_.wait(lock, [this] { return next_ == std::ssize(ranges_) && busy_ == 0; });
    failed = std::exchange(failed_, nullptr);
    ranges_ = {};
    next_ = 0;
  }
  // A file that changed explains whatever else went wrong.
  std::set<int64_t> used;
  for (const FileRange& range : ranges) used.insert(range.file);
  for (const int64_t file : used) check_unchanged(files_[static_cast<size_t>(file)]);
  if (failed) std::rethrow_exception(failed);
}

// Takes over what was fetched ahead for these ranges.
void FileReader::begin(std::span<const FileRange> ranges, const Put& put, std::span<const FileRange> next) {
  ranges_ = ranges;
  put_ = &put;
  next_ = 0;
  failed_ = nullptr;
  if (ahead_) {
    const bool same = ahead_->ranges.data() == ranges.data() && ahead_->ranges.size() == ranges.size();
    ahead_->state = same ? Ahead::State::called : Ahead::State::dropped;
    if (same) next_ = busy_ = ahead_->taken;
  }
  ahead_ = next.empty() ? nullptr : std::make_shared<Ahead>(Ahead{.ranges = next});
}

bool FileReader::has_ahead() const { return ahead_ && ahead_->taken < std::ssize(ahead_->ranges); }

void FileReader::work() {
  Block block;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || next_ < std::ssize(ranges_) || has_ahead(); });
    if (stopping_) return;
    if (next_ == std::ssize(ranges_)) {
      work_ahead(lock, block);
      continue;
    }
    const int64_t index = next_++;
    ++busy_;
    lock.unlock();
    std::exception_ptr error;
    try {
      (*put_)(index, fetch(ranges_[static_cast<size_t>(index)], block));
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    finish(error);
  }
}

// Fetches one range and keeps its bytes until a call asks for them.
void FileReader::work_ahead(std::unique_lock<std::mutex>& lock, Block& block) {
  const std::shared_ptr<Ahead> ahead = ahead_;
  const int64_t index = ahead->taken++;
  lock.unlock();
  const std::byte* data = nullptr;
  std::exception_ptr error;
  try {
    data = fetch(ahead->ranges[static_cast<size_t>(index)], block);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  changed_.wait(lock, [&] { return stopping_ || ahead->state != Ahead::State::awaited; });
  if (ahead->state != Ahead::State::called) return;
  lock.unlock();
  try {
    if (!error) (*put_)(index, data);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  finish(error);
}

// A thread has done its range of the call.
void FileReader::finish(const std::exception_ptr& error) {
  --busy_;
  if (error) {
    if (!failed_) failed_ = error;
    next_ = std::ssize(ranges_);  // start no more
  }
  if (next_ == std::ssize(ranges_) && busy_ == 0) done_.notify_one();
}

const std::byte* FileReader::fetch(const FileRange& range, Block& block) const {
  const OpenFile& file = files_[static_cast<size_t>(range.file)];
  const bool direct = file.descriptor >= 0;
  const int descriptor = direct ? file.descriptor : file.file.descriptor();
  const int64_t step = direct ? kAlignment : 1;
  const int64_t begin = range.offset / step * step, end = range.offset + range.bytes;
  std::byte* data = block.hold(round_up(end, step) - begin);
  for (int64_t at = begin; at < end;) {
    const ssize_t read = ::pread(descriptor, data + (at - begin), static_cast<size_t>(round_up(end, step) - at), at);
    int64_t got = read < 0 ? -errno : read;
    if (options_.result) got = options_.result(at, got);
    if (got == -EINTR || got == -EAGAIN) continue;
    if (got < 0)
      fail_io(fmt::format("cannot read {} bytes at byte {} of {}: {}; {}", end - at, at, file.file.path(),
                          std::strerror(static_cast<int>(-got)), errno_advice(static_cast<int>(-got))));
    // A direct read begins at a block, so the bytes past the last whole block are read again.
    const int64_t moved = at + got >= end ? got : got / step * step;
    if (moved == 0)
      fail_io(
          fmt::format("{} ends before byte {}. This run reads weights from that file in every step, so it must stay "
                      "as it was: restore it, then resume",
                      file.file.path(), end));
    at += moved;
  }
  if (!direct) ::posix_fadvise(descriptor, begin, end - begin, POSIX_FADV_DONTNEED);
  return data + (range.offset - begin);
}

}  // namespace megatrain
