#include "megatrain/run/run_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/host_name.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"

namespace megatrain {

namespace {

using nlohmann::json;

std::string lock_path(const std::string& directory) { return directory + "/lock"; }

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  ::gmtime_r(&now, &parts);
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string owner_text() {
  const std::string host = host_name();
  const json owner = {{"pid", ::getpid()}, {"host", host.empty() ? "an unnamed host" : host}, {"since", time_now()}};
  return owner.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

std::string owner_of(const Descriptor& lock) {
  std::array<char, 4096> text{};
  const ssize_t bytes = ::pread(lock.get(), text.data(), text.size(), 0);
  const json owner =
      json::parse(std::string(text.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0))), nullptr, false);
  if (!owner.is_object() || !owner.contains("pid") || !owner.contains("host") || !owner.at("pid").is_number_integer() ||
      !owner.at("host").is_string())
    return "another process";  // which has not written its name yet
  return fmt::format("pid {} on host {}", owner.at("pid").get<int64_t>(),
                     printable(owner.at("host").get<std::string>()));
}

[[noreturn]] void refuse_unopened(const std::string& path, int error) {
  if (error == ELOOP)
    fail_io(fmt::format("{} is a symbolic link, expected the run's lock file; remove the link", path));
  fail_io(fmt::format("cannot open {}, the lock of the run: {}; check that run_dir can be written", path,
                      std::strerror(error)));
}

}  // namespace

bool RunLock::take(const std::string& directory) {
  release();
  const std::string path = lock_path(directory);
  for (;;) {
    Descriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!lock.is_open()) {
      const int error = errno;
      if (error == ENOENT || error == ENOTDIR) return false;
      refuse_unopened(path, error);
    }
    if (!lock_if_free(lock, path, "a second run out of this directory"))
      fail_config(fmt::format("{} is in use by {}; wait until it ends, stop it, or choose another --run_dir=DIR",
                              directory, owner_of(lock)));
    if (!lock.is_at(path)) continue;  // released and removed, or moved away, since it was opened
    lock_ = std::move(lock);
    path_ = path;
    write_owner(lock_, owner_text());  // for people to read: the lock itself does not need it
    return true;
  }
}

void RunLock::release() noexcept {
  if (lock_.is_open() && lock_.is_at(path_))
    ::unlink(path_.c_str());  // while it is held: a process that just opened this file checks and retries
  lock_.close();
}

bool RunLock::held_at(const std::string& directory) const {
  return lock_.is_open() && lock_.is_at(lock_path(directory));
}

LockState lock_state(const std::string& directory) { return look_at_lock(lock_path(directory)); }

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
