#include "megatrain/run/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"

namespace megatrain {

namespace {

using nlohmann::json;

std::string lock_path(const std::string& directory) { return directory + "/lock"; }

bool is_at(int descriptor, const std::string& path) {
  struct stat ours {
  }, theirs{};
  return ::fstat(descriptor, &ours) == 0 && ::stat(path.c_str(), &theirs) == 0 && ours.st_dev == theirs.st_dev &&
         ours.st_ino == theirs.st_ino;
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unnamed host";
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  ::gmtime_r(&now, &parts);
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

void write_owner(int descriptor) {
  const json owner = {{"pid", ::getpid()}, {"host", host_name()}, {"since", time_now()}};
  const std::string text = owner.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  // The lock holds without this text, which is for people.
  if (::ftruncate(descriptor, 0) == 0) std::ignore = ::pwrite(descriptor, text.data(), text.size(), 0);
}

std::string owner_of(int descriptor) {
  std::array<char, 4096> text{};
  const ssize_t bytes = ::pread(descriptor, text.data(), text.size(), 0);
  const json owner =
      json::parse(std::string(text.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0))), nullptr, false);
  if (!owner.is_object() || !owner.contains("pid") || !owner.contains("host") || !owner.at("pid").is_number_integer() ||
      !owner.at("host").is_string())
    return "another process";  // which has not said yet who it is
  return fmt::format("pid {} on host {}", owner.at("pid").get<int64_t>(),
                     printable(owner.at("host").get<std::string>()));
}

bool has_no_locks(int error) { return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS; }

}  // namespace

bool RunLock::take(const std::string& directory) {
  release();
  const std::string path = lock_path(directory);
  for (;;) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0 && (errno == ENOENT || errno == ENOTDIR)) return false;
    if (descriptor < 0 && errno == ELOOP)
      fail_io(fmt::format("{} is a symbolic link, where the run's lock belongs; remove the link", path));
    if (descriptor < 0)
      fail_io(fmt::format("cannot open {}, the lock of the run: {}; check that run_dir can be written", path,
                          std::strerror(errno)));
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      if (error == EWOULDBLOCK && ::flock(descriptor, LOCK_SH | LOCK_NB) == 0) {  // somebody looks, nobody owns it
        ::close(descriptor);
        continue;
      }
      const std::string owner = error == EWOULDBLOCK ? owner_of(descriptor) : "";
      if (!has_no_locks(error)) ::close(descriptor);
      if (error == EINTR) continue;
      if (error == EWOULDBLOCK)
        fail_config(fmt::format("{} is in use by {}; wait until it ends, stop it, or choose another --run_dir=DIR",
                                directory, owner));
      if (!has_no_locks(error)) fail_io(fmt::format("cannot lock {}: {}; check the disk", path, std::strerror(error)));
      log_warn(fmt::format("{} cannot be locked ({}): nothing keeps a second run out of this directory", path,
                           std::strerror(error)));
    }
    if (is_at(descriptor, path)) {  // else it was released and removed, or moved away, since it was opened
      descriptor_ = descriptor;
      path_ = path;
      write_owner(descriptor);
      return true;
    }
    ::close(descriptor);
  }
}

void RunLock::release() noexcept {
  if (descriptor_ < 0) return;
  if (is_at(descriptor_, path_)) ::unlink(path_.c_str());  // while it is held: a new one's owner looks again
  ::close(std::exchange(descriptor_, -1));
}

bool RunLock::held_at(const std::string& directory) const {
  return descriptor_ >= 0 && is_at(descriptor_, lock_path(directory));
}

LockState lock_state(const std::string& directory) {
  const int descriptor = ::open(lock_path(directory).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return errno == ENOENT || errno == ENOTDIR ? LockState::absent : LockState::unknown;
  const bool free = ::flock(descriptor, LOCK_SH | LOCK_NB) == 0;
  const bool held = !free && errno == EWOULDBLOCK;
  ::close(descriptor);
  return free ? LockState::free : held ? LockState::held : LockState::unknown;
}

bool is_own_lock(const std::string& directory) {
  constexpr int64_t kMostBytes = 4096;
  std::error_code none;
  const std::string path = lock_path(directory);
  if (std::filesystem::symlink_status(path, none).type() != std::filesystem::file_type::regular) return false;
  const uintmax_t bytes = std::filesystem::file_size(path, none);
  if (none || bytes > kMostBytes) return false;
  if (bytes == 0) return true;
  const json owner = json::parse(read_text_file(path, kMostBytes), nullptr, false);
  return owner.is_object() && owner.contains("pid") && owner.contains("host");
}

void RunLock::moved_to(const std::string& directory) { path_ = lock_path(directory); }

}  // namespace megatrain
