#include "megatrain/io/new_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/host_name.h"
#include "megatrain/io/file.h"
#include "megatrain/io/replace.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "lock";
constexpr const char* kContents = "model";                            // and with .partial while it is being written
constexpr std::string_view kMark = "megatrain export writes here: ";  // first line of the lock file; the owner follows

[[noreturn]] void fail_partial(const char* deed, const std::string& path, int error) {
  fail_io(fmt::format("cannot {} {}: {}; {}.", deed, path, std::strerror(error), errno_advice(error)));
}

[[noreturn]] void refuse_other(const std::string& partial) {
  fail_io(fmt::format("{} already exists and is not from an unfinished export; move it, or give --out another name",
                      partial));
}

bool stands(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

[[noreturn]] void refuse_existing(const std::string& out) {
  fail_config(fmt::format("{} already exists; give --out another name", out));
}

bool is_marked(const Descriptor& lock) {
  struct stat status {};
  std::array<char, kMark.size()> begin{};
  return ::fstat(lock.get(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::pread(lock.get(), begin.data(), begin.size(), 0) == std::ssize(begin) &&
         std::string_view(begin.data(), begin.size()) == kMark;
}

std::string mark_of_this_process() {
  const std::string host = host_name();
  return fmt::format("{}pid {} on host {}\n", kMark, ::getpid(), host.empty() ? "?" : host);
}

// False if another process holds it.
bool lock_output(const Descriptor& lock, const std::string& path) {
  return lock_if_free(lock, path, "a second export from the same name");
}

// A new directory in the same parent as `out`, private to this process. If it cannot be made: empty, and errno is set.
std::string make_directory_beside(const std::string& out) {
  constexpr int kMostNames = 10'000;
  for (int n = 0; n < kMostNames; ++n) {
    std::string name = fmt::format("{}.{}-{}.partial", out, ::getpid(), n);
    if (::mkdir(name.c_str(), 0777) == 0) return name;
    if (errno != EEXIST) break;
  }
  return "";
}

bool holds_others(const std::string& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name != kLock && name != kContents && name != fmt::format("{}.partial", kContents)) return true;
  }
  return bool(error);
}

}  // namespace

NewOutput::NewOutput(const std::string& out)
    : out_(out.substr(0, out.find_last_not_of('/') + 1)),
      partial_(out_ + ".partial"),
      path_(partial_ + "/" + kContents) {
  if (stands(out_)) {
    remove_leftover();
    refuse_existing(out_);
  }
  for (bool held = false; !held;) held = take_over() || make();
  if (!stands(out_)) return;
  remove();  // another process finished in the meantime
  refuse_existing(out_);
}

// A process killed after OUT got its name leaves OUT.partial behind, with nothing in it but the lock.
void NewOutput::remove_leftover() noexcept {
  try {
    if (take_over()) remove();
  } catch (const Error&) {
    // not an export's, or in use
  }
}

// False if OUT.partial does not exist, or does not exist any more.
bool NewOutput::take_over() {
  const Descriptor directory(::open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.is_open()) {
    const int error = errno;
    if (error == ENOENT) return false;
    if (error == ENOTDIR || error == ELOOP) refuse_other(partial_);
    fail_partial("open", partial_, error);
  }
  Descriptor lock(::openat(directory.get(), kLock, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!lock.is_open()) {
    const int error = errno;
    if (!directory.is_at(partial_)) return false;
    if (error == EACCES || error == EPERM || error == EROFS) fail_partial("open", partial_ + "/" + kLock, error);
    refuse_other(partial_);
  }
  if (!is_marked(lock)) refuse_other(partial_);
  if (!lock_output(lock, partial_ + "/" + kLock)) {
    fail_config(
        fmt::format("another export is writing {}; wait for it ({}/{} names its process), or give --out another name",
                    out_, partial_, kLock));
  }
  // Before we locked it, its previous owner may have removed it and another process may have made a new one.
  if (!directory.is_at(partial_) || !lock.is_at(partial_ + "/" + kLock)) return false;
  if (holds_others(partial_)) refuse_other(partial_);
  lock_ = std::move(lock);
  remove_contents();
  // The mark is there at every moment, because the new text begins like the old one. The rest of the text is for
  // people.
  write_owner(lock_, mark_of_this_process());
  return true;
}

// False if OUT.partial has appeared in the meantime.
bool NewOutput::make() {
  PartialPath fresh(make_directory_beside(out_));
  if (fresh.path().empty()) fail_partial("create", partial_, errno);
  fresh.created();
  const std::string path = fresh.path() + "/" + kLock;
  Descriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!lock.is_open()) fail_partial("create", path, errno);
  if (!write_owner(lock, mark_of_this_process())) fail_partial("write", path, errno);
  if (!lock_output(lock, path) || !rename_to_new(fresh.path(), partial_)) return false;
  fresh.keep();
  lock_ = std::move(lock);
  return true;
}

void NewOutput::put_in_place() {
  if (!lock_.is_at(partial_ + "/" + kLock))  // it may belong to another process now
    fail_io(fmt::format("{} was removed or replaced while {} was being written there; export again", partial_, out_));
  if (!rename_to_new(path_, out_))
    fail_config(fmt::format(
        "{} was created by another program during the export and is not overwritten; give --out another name", out_));
  sync_new_name(out_);
  remove();
}

void NewOutput::remove_contents() noexcept {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  fs::remove_all(path_ + ".partial", ignored);
}

void NewOutput::remove() noexcept {
  if (!lock_.is_open()) return;
  const Descriptor lock(std::move(lock_));  // released last
  if (!lock.is_at(partial_ + "/" + kLock)) return;
  remove_contents();
  if (holds_others(partial_)) return;
  const std::string aside = make_directory_beside(out_);
  if (aside.empty() || std::rename(partial_.c_str(), aside.c_str()) != 0) return;
  std::error_code ignored;
  fs::remove(aside + "/" + kLock, ignored);
  fs::remove(aside, ignored);
}

void refuse_existing_output(const std::string& out) {
  if (stands(out)) const NewOutput refused(out);
}

}  // namespace megatrain
