#include "megatrain/run/checkpoints.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/io/file.h"
#include "megatrain/io/replace.h"

namespace megatrain {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kRemovedSuffix = ".removed";  // for what is about to be removed or replaced

std::string folder(const std::string& run_dir) { return run_dir + "/checkpoints"; }

// The entries of RUN/checkpoints. Only a missing folder counts as empty: one that cannot be read may hold every
// checkpoint.
std::vector<fs::path> entries_of(const std::string& path) {
  struct stat status {};
  const bool found = ::lstat(path.c_str(), &status) == 0;
  if (!found && (errno == ENOENT || errno == ENOTDIR)) return {};
  std::error_code code = found ? std::error_code() : std::error_code(errno, std::generic_category());
  std::vector<fs::path> entries;
  if (!code) {
    for (fs::directory_iterator it(path, code), end; !code && it != end; it.increment(code))
      entries.push_back(it->path());
  }
  if (code)
    fail_io(
        fmt::format("cannot read {}, where the run's checkpoints are: {}; check its permissions and the disk, and "
                    "where it leads if it is a link",
                    path, code.message()));
  return entries;
}

std::string without(const std::string& name, const char* suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - std::string_view(suffix).size()) : name;
}

// Renames first, so that a kill never leaves half a checkpoint under its own name. Failing to remove it is only a
// warning, because something newer is already saved.
void remove_checkpoint(const std::string& path) {
  try {
    const std::string removed = without(without(path, kRemovedSuffix), kPartialSuffix) + kRemovedSuffix;
    if (removed != path) rename_path(path, removed);
    fs::remove_all(removed);
  } catch (const std::exception& error) {
    log_warn(
        fmt::format("could not remove the old checkpoint {}: {}; remove it to free its space", path, error.what()));
  }
}

}  // namespace

std::vector<std::pair<int64_t, std::string>> list_checkpoints(const std::string& run_dir) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const fs::path& entry : entries_of(folder(run_dir))) {
    if (const std::optional<int64_t> step = step_of_name(entry.filename().string()))
      found.emplace_back(*step, entry.string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void recover_checkpoints(const std::string& run_dir) {
  std::vector<std::string> partial, removed;
  for (const fs::path& entry : entries_of(folder(run_dir))) {
    const std::string name = entry.filename().string();
    for (const auto& [suffix, into] : {std::pair{kPartialSuffix, &partial}, {kRemovedSuffix, &removed}}) {
      if (name.ends_with(suffix) && step_of_name(without(name, suffix))) into->push_back(entry.string());
    }
  }
  for (const std::string& path : partial) {
    const std::string whole = without(path, kPartialSuffix);
    const std::string damage = damage_of_checkpoint(path);
    if (damage.empty() && (!fs::exists(whole) || !damage_of_checkpoint(whole).empty())) {
      const std::string former = replace_directory(path, whole, whole + kRemovedSuffix);
      sync_directory(folder(run_dir));
      if (!former.empty()) remove_checkpoint(former);
      log_info(fmt::format("{} was complete except for its name, because a run was killed; it is {} now", path, whole));
    } else {
      remove_checkpoint(path);
      log_info(fmt::format("removed {}, which a killed run left{}", path, damage.empty() ? "" : " half-written"));
    }
  }
  for (const std::string& path : removed) {
    if (!fs::exists(path)) continue;
    remove_checkpoint(path);
    log_info(fmt::format("removed {}, which a killed run was removing", path));
  }
}

std::optional<Checkpoint> Checkpoints::newest() {
  const auto all = list_checkpoints(run_dir_);
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    if (damaged_.contains(it->second)) continue;
    try {
      return read_checkpoint(it->second);
    } catch (const Error& error) {
      if (error.code() != ExitCode::corrupt_checkpoint) throw;
      log_warn(error.what());
      damaged_.insert(it->second);
    }
  }
  if (all.empty()) return {};
  fail(ExitCode::corrupt_checkpoint,
       fmt::format(
           "{} has no intact checkpoint to resume from ({} damaged, the newest {}); bring one back from a copy, or "
           "start again without --resume, which moves this run aside",
           run_dir_, damaged_.size(), all.back().second));
}

Checkpoint Checkpoints::restore_newest(std::vector<LayerRecord>& records, int threads) {
  for (;;) {
    const std::optional<Checkpoint> checkpoint = newest();
    ensure(checkpoint.has_value(), "a run that is resumed has a checkpoint");
    try {
      log_info(fmt::format("loading {}", checkpoint->path));
      restore_checkpoint(*checkpoint, records, threads);
    } catch (const Error& error) {
      if (error.code() != ExitCode::corrupt_checkpoint) throw;
      log_warn(error.what());
      damaged_.insert(checkpoint->path);
      continue;
    }
    if (!damaged_.empty())
      log_warn(fmt::format("{} is damaged and stays as it is; resuming from the older {}", *damaged_.rbegin(),
                           checkpoint->path));
    if (checkpoint->version < kExactCheckpointVersion)
      log_info(
          fmt::format("{} is of version {}, which has no checksum of its description; the next one is of version {}",
                      checkpoint->path, checkpoint->version, kExactCheckpointVersion));
    log_info(fmt::format("resumed from {}", checkpoint->path));
    saved_step_ = checkpoint->step;
    return *checkpoint;
  }
}

void Checkpoints::save(int64_t step, const json& identity, const TensorTypes& types,
                       const std::vector<LayerRecord>& records, int threads) {
  if (saved(step)) return;
  const std::string final_path = fmt::format("{}/step-{:08d}", folder(run_dir_), step);
  PartialPath partial(final_path + kPartialSuffix);
  std::error_code code;
  fs::remove_all(partial.path(), code);
  const bool first = fs::create_directories(folder(run_dir_), code);
  if (!code) fs::create_directory(partial.path(), code);
  if (code)
    fail_io(fmt::format("could not create {}: {}; check that the disk is writable", partial.path(), code.message()));
  if (first) sync_directory(run_dir_);
  partial.created();
  write_checkpoint(partial.path(), step, identity, types, records, threads);
  const std::string former = replace_directory(partial.path(), final_path, final_path + kRemovedSuffix);
  partial.keep();
  sync_new_name(final_path);
  saved_step_ = step;
  damaged_.erase(final_path);
  if (!former.empty()) remove_checkpoint(former);
  rotate();
}

void Checkpoints::rotate() {
  int64_t whole = 0;
  const auto all = list_checkpoints(run_dir_);
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    const auto& [step, path] = *it;
    if (damaged_.contains(path)) continue;
    try {
      if (step != saved_step_) read_checkpoint(path);
    } catch (const Error&) {
      continue;  // a damaged one neither counts towards `keep` nor is ours to remove
    }
    if (++whole > keep_) remove_checkpoint(path);
  }
}

}  // namespace megatrain
