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
  fail_io(
      fmt::format("cannot rename {} to {}: {}; check the directory they are in.", fresh, path, std::strerror(error)));
}

bool can_read(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor >= 0) {
    ::close(descriptor);
    return true;
  }
  if (errno == ENOENT || errno == ENOTDIR) return false;
  fail_io(fmt::format("cannot open {}: {}; check its permissions and the disk.", path, std::strerror(errno)));
}

}  // namespace megatrain
