#include "megatrain/run/run_directory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/shell_word.h"
#include "megatrain/hub/export.h"
#include "megatrain/io/file.h"
#include "megatrain/io/lies_in.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/run/foreign_files.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

std::string without_final_slash(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  return last == std::string::npos ? path : path.substr(0, last + 1);
}

// A demo's directory has a hash and no configuration.
bool holds_run(const std::string& path) {
  return is_run_directory(path) || is_demo_directory(path) || !list_checkpoints(path).empty();
}

// The end of a sentence when the directory cannot be renamed; otherwise empty.
std::string why_fixed(const fs::path& real) {
  std::error_code none;
  const fs::path here = fs::current_path(none);
  if (lies_in(here, real))
    return real == here ? "this command was started in it" : "this command was started inside it";
  struct statx found {};
  if (::statx(AT_FDCWD, real.c_str(), 0, STATX_BASIC_STATS, &found) == 0 &&
      (found.stx_attributes & found.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0)
    return "it is where a disk is mounted";
  return "";
}

[[noreturn]] void fail_fixed(const std::string& path, const std::string& why) {
  fail_config(
      fmt::format("{} holds an earlier run, which cannot be moved aside, as {}; choose another directory with "
                  "--run_dir=DIR, or resume that run with --resume",
                  path, why));
}

// Removes what write_text_file and the dump writers left unfinished. Files of other names are not ours to remove.
void remove_partial_files(const std::string& directory) {
  std::vector<fs::path> stale;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, code)) {
    std::error_code ignored;
    if (is_own_partial(entry.path().filename().string()) &&
        entry.symlink_status(ignored).type() == fs::file_type::regular)
      stale.push_back(entry.path());
  }
  for (const fs::path& path : stale) {
    if (fs::remove(path, code)) log_info(fmt::format("removed {}, which a killed run left unfinished", path.string()));
    if (code) log_warn(fmt::format("could not remove {}, which a killed run left: {}", path.string(), code.message()));
  }
}

// An early check, before anything is tokenised or trained; make() may still fail.
void check_can_be_made(const std::string& path) {
  std::error_code none;
  fs::path there = fs::absolute(path, none);
  // read once: another process may move the directory aside meanwhile
  fs::file_status status = fs::status(there, none);
  const auto leads_nowhere = [&] { return !fs::exists(status) && fs::is_symlink(fs::symlink_status(there, none)); };
  for (; !fs::exists(status) && !leads_nowhere() && there.has_relative_path(); status = fs::status(there, none))
    there = there.parent_path();
  std::string why;
  struct statfs system {};
  const bool of_kernel =
      ::statfs(there.c_str(), &system) == 0 && (system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC);
  if (leads_nowhere()) {
    why = fmt::format("{} is a link that leads nowhere", there.string());
  } else if (!fs::is_directory(status)) {
    why = fmt::format("{} is not a directory", there.string());
  } else if (of_kernel) {  // access() reports these as writable for root
    why = fmt::format("nothing can be written to {}, which belongs to the kernel", there.string());
  } else if (::access(there.c_str(), W_OK | X_OK) != 0 && errno != ENOENT) {
    why = fmt::format("nothing can be written to {}: {}", there.string(), std::strerror(errno));
  }
  if (!why.empty())
    fail_io(fmt::format("could not create run_dir {}: {}; choose another with --run_dir=DIR", path, why));
}

}  // namespace

RunDirectory::RunDirectory(const std::string& path, bool resume, const std::vector<std::string>& inputs)
    : path_(without_final_slash(path)), resume_(resume) {
  check_can_be_made(path_);
  const bool found = holds_run(path_);
  if (!found && lock_state(path_) != LockState::held) check_nothing_foreign(path_, inputs);
  if (!found || !lock_.take(path_)) return;
  if (!resume_) {
    std::error_code none;
    if (const std::string why = why_fixed(fs::canonical(path_, none)); !why.empty()) fail_fixed(path_, why);
    return;
  }
  check_no_links(path_);
  recover_checkpoints(path_);
  for (const char* name : {"/model", "/best", "/companions"}) recover_export(path_ + name);
  remove_partial_files(path_);
}

void RunDirectory::make() {
  for (;;) {
    std::error_code code;
    fs::create_directories(path_, code);
    if (code)
      fail_io(fmt::format("could not create run_dir {}: {}; choose another with --run_dir=DIR", path_, code.message()));
    const bool held = lock_.held_at(path_);
    if (!held && !lock_.take(path_)) continue;
    const bool goes_on = resume_ && !(starts_over_ && held);
    if (!holds_run(path_) || (goes_on && held)) break;
    if (goes_on)
      fail_config(fmt::format(
          "another run has used {} since this one started and found nothing there to resume; start it again", path_));
    move_aside();
  }
  remove_partial_files(path_);  // also those of a run that died at its start and is not resumed
  made_.emplace(path_);
  sync_directory(parent_directory(path_));
}

void RunDirectory::check_in_place() const {
  if (in_place()) return;
  fail_io(
      fmt::format("{} was removed, moved or replaced while this run was using it; nothing more is written there. If it "
                  "has a checkpoint, resume it with --resume --run_dir=DIR, where DIR is its place now",
                  path_));
}

void RunDirectory::move_aside() {
  std::error_code code;
  // If path_ is a symbolic link, its target is renamed and replaced by a new directory, so the link stays valid.
  const bool link = fs::is_symlink(fs::symlink_status(path_, code));
  const fs::path named(path_), real = fs::canonical(path_, code);
  if (const std::string why = why_fixed(real); !why.empty()) fail_fixed(path_, why);
  const bool plain = !link && named.filename() != "." && named.filename() != "..";
  const std::string from = plain ? path_ : real.string();
  const bool resumable = !starts_over_ && !list_checkpoints(path_).empty();
  int n = 1;
  while (fs::exists(fs::symlink_status(fmt::format("{}.{}", from, n), code))) ++n;
  const std::string aside = fmt::format("{}.{}", from, n);
  if (std::rename(from.c_str(), aside.c_str()) != 0) {
    if (errno == EBUSY || errno == EXDEV) fail_fixed(path_, "it is in use by the system, as a mounted disk is");
    fail_io(
        fmt::format("cannot move the earlier run in {} aside to {}: {}; choose another directory with --run_dir=DIR",
                    path_, aside, std::strerror(errno)));
  }
  lock_.moved_to(aside);
  lock_.release();
  if (link) fs::create_directory(from, code);  // make() reports it if this fails
  log_warn(fmt::format("{} held an earlier run; it was moved to {}{}", path_, aside,
                       resumable ? fmt::format(" (--resume --run_dir={} resumes it)", shell_word(aside)) : ""));
}

}  // namespace megatrain
