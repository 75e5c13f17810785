#include "megatrain/run/run_directory.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <regex>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/hub/export.h"
#include "megatrain/io/file.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

std::string without_final_slash(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  return last == std::string::npos ? path : path.substr(0, last + 1);
}

bool holds_run(const std::string& path) { return is_run_directory(path) || !list_checkpoints(path).empty(); }

// NAME of NAME.PID-N.partial, as write_text_file has it for a moment; else empty.
std::string name_of_text(const std::string& partial) {
  static const std::regex kForm(R"((.+)\.\d+-\d+\.partial)");
  std::smatch parts;
  return std::regex_match(partial, parts, kForm) ? parts[1].str() : "";
}

bool is_own_partial(const std::string& name) {
  static const std::set<std::string> kTexts = {
      "config.resolved.yaml", "translation.txt", "model_config.json", "plan.json",  "memory.json",
      "identity.json",        "hash.json",       "trace.json",        "lanes.json", "live.json",
      "metrics.jsonl",        "eval.jsonl",      "samples.jsonl"};
  static const std::regex kDump(R"((state|grads)-\d+\.safetensors\.partial)");
  return kTexts.contains(name_of_text(name)) || std::regex_match(name, kDump);
}

// Files that write_text_file and the writers of dumps were not done with. Other names are not ours to remove.
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
    if (fs::remove(path, code))
      log_info(fmt::format("removed {}, which a killed run was not done with", path.string()));
    if (code) log_warn(fmt::format("could not remove {}, which a killed run left: {}", path.string(), code.message()));
  }
}

// Refused before anything is tokenised or trained; make() may still find it otherwise.
void check_can_be_made(const std::string& path) {
  std::error_code none;
  fs::path there = fs::absolute(path, none);
  while (!fs::exists(there, none) && there.has_relative_path()) there = there.parent_path();
  std::string why;
  if (!fs::is_directory(there, none)) {
    why = fmt::format("{} is not a directory", there.string());
  } else if (::access(there.c_str(), W_OK | X_OK) != 0) {
    why = fmt::format("nothing can be written to {}: {}", there.string(), std::strerror(errno));
  }
  if (!why.empty())
    fail_io(fmt::format("could not create run_dir {}: {}; choose another with --run_dir=DIR", path, why));
}

}  // namespace

RunDirectory::RunDirectory(const std::string& path, bool resume) : path_(without_final_slash(path)), resume_(resume) {
  check_can_be_made(path_);
  if (!holds_run(path_) || !lock_.take(path_) || !resume_) return;
  recover_checkpoints(path_);
  for (const char* name : {"/model", "/best"}) recover_export(path_ + name);
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
      fail_config(
          fmt::format("another run has used {} since this one was started, which found nothing there to go on from; "
                      "start it again",
                      path_));
    move_aside();
  }
  made_.emplace(path_);
  sync_directory(parent_directory(path_));
}

void RunDirectory::check_in_place() const {
  if (made_ && made_->is_at(path_)) return;
  fail_io(
      fmt::format("{} was moved or replaced while this run was using it; nothing more is written there. Go on from the "
                  "last checkpoint with --resume and --run_dir=DIR, where DIR is its place now",
                  path_));
}

void RunDirectory::move_aside() {
  std::error_code code;
  int n = 1;
  while (fs::exists(fs::symlink_status(fmt::format("{}.{}", path_, n), code))) ++n;
  const std::string aside = fmt::format("{}.{}", path_, n);
  rename_path(path_, aside);
  lock_.moved_to(aside);
  lock_.release();
  log_warn(fmt::format("{} held an earlier run; it was moved to {}{}", path_, aside,
                       starts_over_ ? "" : " (use --resume to go on with it)"));
}

}  // namespace megatrain
