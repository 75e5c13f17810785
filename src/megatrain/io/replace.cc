#include "megatrain/io/replace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"

namespace megatrain {
namespace {

[[noreturn]] void fail_rename(const std::string& from, const std::string& to, int error) {
  fail_io(fmt::format("cannot rename {} to {}: {}; check the directory they are in.", from, to, std::strerror(error)));
}

}  // namespace

std::string replace_directory(const std::string& fresh, const std::string& path, const std::string& aside) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 && errno == ENOENT) {
    rename_path(fresh, path);
    return "";
  }
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) return fresh;
  rename_path(path, aside);
  if (std::rename(fresh.c_str(), path.c_str()) == 0) return aside;
  const int error = errno;
  rename_path(aside, path);
  fail_rename(fresh, path, error);
}

bool rename_to_new(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  const int error = errno;
  if (error == EEXIST) return false;
  if (error == EINVAL || error == ENOSYS || error == EOPNOTSUPP) return rename_to_new_in_steps(from, to);
  fail_rename(from, to, error);
}

bool rename_to_new_in_steps(const std::string& from, const std::string& to) {
  struct stat status {};
  if (::lstat(from.c_str(), &status) != 0) fail_rename(from, to, errno);
  const bool directory = S_ISDIR(status.st_mode);
  if (!directory && ::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return true;
  }
  if (!directory && errno == EEXIST) return false;
  const int made = directory ? ::mkdir(to.c_str(), 0777) : ::open(to.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (made < 0 && errno == EEXIST) return false;
  if (made < 0) fail_rename(from, to, errno);
  if (!directory) ::close(made);
  if (std::rename(from.c_str(), to.c_str()) == 0) return true;
  const int error = errno;
  std::remove(to.c_str());  // the empty file or directory
  fail_rename(from, to, error);
}

int try_sync_directory(const std::string& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some network file systems cannot sync a directory and do not need to.
  return error == EINVAL || error == ENOTSUP ? 0 : error;
}

void sync_new_name(const std::string& path) {
  const std::string directory = parent_directory(path);
  if (const int error = try_sync_directory(directory))
    fail_io(
        fmt::format("{} was written, but the disk did not confirm it (sync of {}: {}): it may be lost after a power "
                    "failure. Check the disk, and copy important files to another one",
                    path, directory, std::strerror(error)));
}

bool can_read(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0 && (errno == ENOENT || errno == ENOTDIR)) return false;
  if (descriptor < 0)
    fail_io(fmt::format("cannot open {}: {}; check its permissions and the disk.", path, std::strerror(errno)));
  struct stat status {};
  const bool file = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  ::close(descriptor);
  if (!file)
    fail_io(fmt::format("cannot read {}: expected a file, but it is {}; move it away.", path,
                        S_ISDIR(status.st_mode) ? "a directory" : "not a regular file"));
  return true;
}

std::optional<std::string> read_text_if_there(const std::string& path, int64_t limit) {
  if (!can_read(path)) return {};
  return read_text_file(path, limit);
}

}  // namespace megatrain
