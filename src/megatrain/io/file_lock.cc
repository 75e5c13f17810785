#include "megatrain/io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <tuple>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/io/file.h"

namespace megatrain {

bool Descriptor::is_at(const std::string& path) const {
  struct stat ours {
  }, theirs{};
  return ::fstat(opened_, &ours) == 0 && ::lstat(path.c_str(), &theirs) == 0 && ours.st_dev == theirs.st_dev &&
         ours.st_ino == theirs.st_ino;
}

void Descriptor::close() noexcept {
  if (is_open()) ::close(std::exchange(opened_, -1));
}

bool lock_if_free(const Descriptor& file, const std::string& path, std::string_view others) {
  for (;;) {
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return true;
    const int error = errno;
    if (error == EINTR) continue;
    if (error == EWOULDBLOCK) {
      if (::flock(file.get(), LOCK_SH | LOCK_NB) != 0) return false;
      ::flock(file.get(), LOCK_UN);  // another process was only looking; nobody holds it
      continue;
    }
    if (error != ENOLCK && error != EOPNOTSUPP && error != ENOSYS)
      fail_io(fmt::format("cannot lock {}: {}; {}.", path, std::strerror(error), errno_advice(error)));
    log_warn(fmt::format("{} cannot be locked ({}): nothing keeps {}", path, std::strerror(error), others));
    return true;
  }
}

bool write_owner(const Descriptor& file, std::string_view text) {
  if (::pwrite(file.get(), text.data(), text.size(), 0) != std::ssize(text)) return false;
  std::ignore = ::ftruncate(file.get(), static_cast<off_t>(text.size()));
  return true;
}

LockState look_at_lock(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return errno == ENOENT || errno == ENOTDIR ? LockState::absent : LockState::unknown;
  if (::flock(file.get(), LOCK_SH | LOCK_NB) == 0) return LockState::free;
  return errno == EWOULDBLOCK ? LockState::held : LockState::unknown;
}

}  // namespace megatrain
