#include "megatrain/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/shortage.h"
#include "megatrain/io/json.h"
#include "megatrain/io/mapping_guard.h"
#include "megatrain/io/replace.h"

namespace megatrain {
namespace {

constexpr mode_t kFileMode = 0666;  // minus the umask
constexpr size_t kQuotedCharacters = 120;

bool users_fault(int error) {
  return error == ENOENT || error == ENOTDIR || error == EISDIR || error == ELOOP || error == ENAMETOOLONG;
}

[[noreturn]] void fail_errno(const char* deed, const std::string& path, int error) {
  fail(is_shortage(error) ? ExitCode::cannot_fit : ExitCode::io,
       fmt::format("cannot {} {}: {}; {}.", deed, path, std::strerror(error), errno_advice(error)));
}

// Creates an empty file with a name that no other writer of `path` uses, on this machine or another.
std::string reserve_name_beside(const std::string& path) {
  constexpr int kMostNames = 10'000;  // of one process for one path at the same time
  for (int n = 0;; ++n) {
    std::string name = fmt::format("{}.{}-{}.partial", path, ::getpid(), n);
    const int descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode);
    if (descriptor >= 0) {
      ::close(descriptor);
      return name;
    }
    if (errno != EEXIST || n == kMostNames) fail_errno("create", path, errno);
  }
}

}  // namespace

File File::open_to_read(const std::string& path) {
  File file;
  file.path_ = path;
  // Non-blocking, so that opening a pipe does not hang; regular files ignore it.
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor_ < 0) {
    const int error = errno;
    if (!users_fault(error)) fail_errno("open", path, error);
    fail_input(fmt::format("cannot open {}: {}; {}.", path, std::strerror(error), errno_advice(error)));
  }
  return file;
}

File File::create(const std::string& path) {
  File file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, kFileMode);
  if (file.descriptor_ < 0) fail_errno("create", path, errno);
  return file;
}

File File::open_to_write(const std::string& path) {
  File file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode);
  if (file.descriptor_ < 0) fail_errno("open", path, errno);
  return file;
}

File::~File() { close(); }

File::File(File&& other) noexcept : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

int64_t File::bytes() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail_errno("examine", path_, errno);
  if (!S_ISREG(status.st_mode)) fail_input(fmt::format("{} is not a regular file; give the path of a file.", path_));
  return status.st_size;
}

void File::read_at(int64_t offset, void* data, int64_t bytes) const {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::pread(descriptor_, next, static_cast<size_t>(bytes), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_errno("read", path_, errno);
    if (done == 0) {
      fail_io(
          fmt::format("{} ended at byte {} with {} bytes still to read; it was truncated while being read: try again.",
                      path_, offset, bytes));
    }
    next += done;
    offset += done;
    bytes -= done;
  }
}

void File::write_at(int64_t offset, const void* data, int64_t bytes) const {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::pwrite(descriptor_, next, static_cast<size_t>(bytes), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_errno("write", path_, errno);
    next += done;
    offset += done;
    bytes -= done;
  }
}

void File::reserve(int64_t bytes) const {
  int result = 0;
  do {
    result = ::fallocate(descriptor_, 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EOPNOTSUPP) result = ::ftruncate(descriptor_, bytes);
  if (result != 0) {
    const int error = errno;
    fail_io(fmt::format("cannot reserve {} bytes for {}: {}; {}.", bytes, path_, std::strerror(error),
                        errno_advice(error)));
  }
}

void File::truncate(int64_t bytes) const {
  if (::ftruncate(descriptor_, bytes) != 0) fail_errno("set the length of", path_, errno);
}

void File::sync() const {
  if (::fsync(descriptor_) != 0) fail_errno("make durable", path_, errno);
}

void File::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

DirectoryLock::DirectoryLock(const std::string& directory) : directory_(directory) {
  descriptor_ = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0 && errno != ENOENT) fail_errno("open", directory, errno);
}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool DirectoryLock::try_lock() {
  if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK || errno == EINTR) return false;
  fail_errno("lock", directory_, errno);
}

bool DirectoryLock::is_at(const std::string& path) const {
  struct stat ours {
  }, theirs{};
  return ::fstat(descriptor_, &ours) == 0 && ::stat(path.c_str(), &theirs) == 0 && ours.st_dev == theirs.st_dev &&
         ours.st_ino == theirs.st_ino;
}

MappedFile::MappedFile(const std::string& path) : file_(File::open_to_read(path)) {
  bytes_ = file_.bytes();
  if (bytes_ == 0) return;
  void* mapping = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ, MAP_PRIVATE, file_.descriptor(), 0);
  if (mapping == MAP_FAILED) fail_errno("map", path, errno);
  data_ = static_cast<const std::byte*>(mapping);
  watched_ = watch_mapping(data_, bytes_, path);
}

MappedFile::~MappedFile() {
  forget_mapping(watched_);
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(bytes_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : file_(std::move(other.file_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      watched_(std::exchange(other.watched_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(watched_, other.watched_);
  return *this;
}

void MappedFile::check_whole() const {
  const int64_t now = file_.bytes();
  if (now >= bytes_) return;
  fail_io(fmt::format("{} has {} bytes but had {} when it was opened: it was truncated while in use; restore the file.",
                      path(), now, bytes_));
}

void PartialPath::remove() noexcept {
  if (!std::exchange(ours_, false)) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void PartialPath::put_at(const std::string& path) {
  rename_path(path_, path);
  keep();
  sync_new_name(path);
}

std::string read_text_file(const std::string& path, int64_t limit) {
  const File file = File::open_to_read(path);
  const int64_t bytes = file.bytes();
  if (bytes > limit) {
    fail_input(
        fmt::format("{} has {} bytes, more than the {} allowed for such a file; check that it is the right file.", path,
                    bytes, limit));
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read_at(0, text.data(), bytes);
  return text;
}

namespace {

// The path that a link leads to, whether or not it exists.
std::string behind_links(std::filesystem::path path) {
  constexpr int kMost = 40;  // the kernel's own limit
  std::error_code error;
  for (int i = 0; i < kMost && std::filesystem::is_symlink(path, error); ++i)
    path = path.parent_path() / std::filesystem::read_symlink(path);
  return path.string();
}

// For a pipe or a device.
void write_in_place(const std::string& path, std::string_view text) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) fail_errno("open", path, errno);
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  ::close(descriptor);
  if (error != 0) fail_errno("write", path, error);
}

}  // namespace

void write_text_file(const std::string& given, std::string_view text) {
  std::error_code ignored;
  const std::string path = behind_links(given);
  if (std::filesystem::is_character_file(path, ignored) || std::filesystem::is_fifo(path, ignored) ||
      std::filesystem::is_block_file(path, ignored))
    return write_in_place(path, text);
  PartialPath partial(reserve_name_beside(path));
  partial.created();
  File file = File::open_to_write(partial.path());
  file.write_at(0, text.data(), static_cast<int64_t>(text.size()));
  file.sync();
  file.close();
  partial.put_at(path);
}

void sync_directory(const std::string& directory) {
  if (const int error = try_sync_directory(directory)) fail_errno("make durable", directory, error);
}

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return;
  const int error = errno;
  fail_io(fmt::format("cannot rename {} to {}: {}; {}.", from, to, std::strerror(error), errno_advice(error)));
}

std::string parent_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

const char* errno_advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return "free space there or choose another directory";
    case EACCES:
    case EPERM: return "check its permissions";
    case EROFS: return "choose a directory that can be written";
    case ENOENT:
    case ENOTDIR: return "check the path";
    case EFBIG: return "the file system or a limit (ulimit -f) refuses a file of this size: choose another directory";
    case EMFILE:
    case ENFILE: return "raise the limit on open files (ulimit -n)";
    case ENOMEM: return "free memory, or raise the memory limit (ulimit -v, or the container's)";
    default: return "check the disk and try again";
  }
}

std::string printable(std::string_view text) {
  const bool cut = text.size() > kQuotedCharacters;
  const nlohmann::json value = std::string(text.substr(0, kQuotedCharacters)) + (cut ? "..." : "");
  return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace megatrain
