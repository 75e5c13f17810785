#include "megatrain/run/disk_need.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/hub/companions.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/io/user_cache.h"
#include "megatrain/model/files/kept_tensors.h"
#include "megatrain/model/model.h"
#include "megatrain/model/model_source.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/train/setup.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

struct ModelBytes {
  int64_t checkpoint = 0, exported = 0;
  int64_t state_dump = 0, gradient_dump = 0;
};

ModelBytes bytes_of(const TrainConfig& config, const ModelConfig& model, const TensorTypes& stored) {
  constexpr int64_t kHeader = 64 * kKiB;  // of a file, in addition to one entry per tensor
  constexpr int64_t kEntry = 160;
  const RunIdentity identity = make_identity(config, model);
  const MomentFormat moments = identity.state.moments;
  const int64_t master = identity.state.master == MasterFormat::stochastic ? 2 : 4;
  ModelBytes bytes{.checkpoint = kHeader, .exported = kHeader, .state_dump = kHeader, .gradient_dump = kHeader};
  for (const LayerLayout& layout : model_layouts(model, identity.dtype, identity.trained)) {
    for (const TensorSpec& tensor : layout.tensors) {
      if (identity.trained.adapter.any() && !tensor.trainable) continue;  // neither saved nor exported
      const int64_t count = tensor.elements(), trained = tensor.trainable ? count : 0;
      const auto found = stored.find(tensor.name);
      const DType type = identity.trained.adapter.any() ? DType::f32
                         : found != stored.end()        ? found->second.dtype
                                                        : model.dtype.value_or(identity.dtype);
      bytes.checkpoint += kEntry + count * master + 2 * trained * moment_element_bytes(moments);
      if (moments == MomentFormat::int8 && tensor.trainable) bytes.checkpoint += 2 * 4 * tensor.blocks();
      bytes.exported += kEntry + count * dtype_bytes(type);
      bytes.state_dump += kEntry + 4 * (count + 2 * trained);
      bytes.gradient_dump += kEntry + 4 * trained;
    }
  }
  return bytes;
}

int64_t bytes_in(const fs::path& directory) {
  int64_t sum = 0;
  std::error_code code;
  fs::recursive_directory_iterator at(directory, code);
  for (; !code && at != fs::recursive_directory_iterator(); at.increment(code)) {
    std::error_code none;
    if (at->is_regular_file(none)) sum += static_cast<int64_t>(at->file_size(none));
  }
  return sum;
}

// Size of the tokenizer files, templates and licences, which every model of the run contains. 0 if they cannot be
// found: whatever opens them later reports why.
int64_t companion_bytes(const TrainConfig& config) {
  std::string directory;
  try {
    directory =
        companion_directory(config, config.model.path.empty() ? "" : find_model(config.model.path, ModelParts::config));
  } catch (const Error&) {
    return 0;
  }
  int64_t sum = 0;
  std::error_code code;
  for (fs::directory_iterator at(directory, code), end; !code && at != end; at.increment(code)) {
    std::error_code none;
    const std::string name = at->path().filename().string();
    if (name == kNamedTemplates) sum += bytes_in(at->path());
    if (is_companion_name(name) && at->is_regular_file(none)) sum += static_cast<int64_t>(at->file_size(none));
  }
  return sum;
}

// Bytes of a multimodal model's tensors outside its text part, which the run copies and every model of it contains. 0
// if they cannot be read: loading reports why.
int64_t kept_bytes(const TrainConfig& config, const ModelConfig& model) {
  if (model.part_of.empty() || config.model.path.empty() || config.adapter.rank > 0) return 0;
  try {
    return KeptTensors(find_model(config.model.path, ModelParts::weights), model).bytes();
  } catch (const Error&) {
    return 0;
  }
}

// How many steps of the set a run of `steps` steps has.
int64_t count_of(const StepSet& set, int64_t steps) {
  if (set.all) return steps;
  int64_t count = 0;
  for (const auto& [first, last] : set.ranges) count += std::max<int64_t>(0, std::min(last, steps) - first + 1);
  return count;
}

// Counts the checkpoints that are kept plus the one being written: older ones go only when the new one is complete.
void add_checkpoints(const TrainConfig& config, int64_t steps, DiskNeed& need) {
  const int64_t each = need.checkpoint_bytes, every = config.checkpoint.every, keep = config.checkpoint.keep;
  const bool last = saves_last_step(config);
  if (every == 0 || (steps < every && !last)) return;
  need.checkpoints_planned = true;
  int64_t there = 0, there_bytes = 0;
  if (config.resume) {
    for (const auto& [step, path] : list_checkpoints(config.run_dir)) {
      ++there;
      there_bytes += bytes_in(path);
    }
  }
  const int64_t count = std::min(keep + 1, there + steps / every + (last && steps % every != 0 ? 1 : 0));
  // On overflow any count that no disk can hold will do.
  int64_t bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes)) bytes = std::numeric_limits<int64_t>::max() / 4;
  const std::string why =
      count > keep ? fmt::format(" ({} is {}, and one is being written)", config.names("checkpoint.keep"), keep)
                   : fmt::format(" ({} is {})", config.names("checkpoint.every"), every);
  need.parts.push_back(
      {.what = fmt::format("{} of {}{}{}", counted(count, "checkpoint"), format_bytes_up(each), why,
                           there > 0 ? fmt::format(", of which {} are there", format_bytes(there_bytes)) : ""),
       .directory = config.run_dir,
       .bytes = std::max<int64_t>(0, bytes - there_bytes),
       .remedy = keep > 1 && count > 2  // count is 2 even at the minimum: one kept and one being written
                     ? fmt::format("lower {}", config.names("checkpoint.keep"))
                     : fmt::format("set {} to save only on a signal", config.names.setting("checkpoint.every", "0"))});
}

// The parts that share a file system, as indices into DiskNeed::parts.
struct Volume {
  std::optional<FreeSpace> free;
  std::vector<size_t> parts;
  int64_t bytes = 0;
};

std::vector<Volume> volumes_of(const DiskNeed& need, const FreeSpaceOf& free_of) {
  std::vector<Volume> volumes;
  for (size_t i = 0; i < need.parts.size(); ++i) {
    const DiskPart& part = need.parts[i];
    const std::optional<FreeSpace> free = free_of ? free_of(part.directory) : std::nullopt;
    auto at = std::find_if(volumes.begin(), volumes.end(), [&](const Volume& volume) {
      return free && volume.free ? free->device == volume.free->device
                                 : !free && !volume.free && need.parts[volume.parts[0]].directory == part.directory;
    });
    if (at == volumes.end()) at = volumes.insert(at, Volume{.free = free, .parts = {}});
    at->parts.push_back(i);
    if (__builtin_add_overflow(at->bytes, part.bytes, &at->bytes)) at->bytes = std::numeric_limits<int64_t>::max();
  }
  return volumes;
}

std::string places_of(const DiskNeed& need, const Volume& volume) {
  std::vector<std::string> places;
  for (const size_t i : volume.parts) {
    const std::string& place = need.parts[i].directory;
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  return fmt::format("{}{}", fmt::join(places, " and "), places.size() > 1 ? " (one file system)" : "");
}

std::string parts_of(const DiskNeed& need, const Volume& volume) {
  std::vector<std::string> texts;
  for (const size_t i : volume.parts) texts.push_back(need.parts[i].what);
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

bool saves_last_step(const TrainConfig& config) {
  return config.checkpoint.every_part == 1 || (config.conventions != "megatrain" && config.checkpoint.every > 0);
}

int64_t DiskNeed::bytes() const {
  int64_t sum = 0;
  for (const DiskPart& part : parts)
    if (__builtin_add_overflow(sum, part.bytes, &sum)) return std::numeric_limits<int64_t>::max();
  return sum;
}

DiskNeed disk_need(const TrainConfig& config, const ModelConfig& model, const TensorTypes& stored,
                   std::optional<int64_t> steps, int64_t scratch_bytes) {
  const ModelBytes bytes = bytes_of(config, model, stored);
  DiskNeed need{.parts = {}, .checkpoint_bytes = bytes.checkpoint};
  const auto add = [&](std::string what, int64_t count, int64_t each, std::string remedy) {
    if (count == 0) return;
    int64_t all = 0;
    if (__builtin_mul_overflow(count, each, &all)) all = std::numeric_limits<int64_t>::max() / 4;
    need.parts.push_back(
        {.what = std::move(what), .directory = config.run_dir, .bytes = all, .remedy = std::move(remedy)});
  };
  if (steps) {
    add_checkpoints(config, *steps, need);
    const int64_t states = count_of(config.dump.state, *steps), gradients = count_of(config.dump.grads, *steps);
    add(fmt::format("{} of the state of {}", counted(states, "dump"), format_bytes_up(bytes.state_dump)), states,
        bytes.state_dump, "name fewer steps in dump.state");
    add(fmt::format("{} of gradients of {}", counted(gradients, "dump"), format_bytes_up(bytes.gradient_dump)),
        gradients, bytes.gradient_dump, "name fewer steps in dump.grads");
  }
  const int64_t companions = companion_bytes(config), kept = kept_bytes(config, model),
                exported = bytes.exported + companions + kept;
  add(fmt::format("the tokenizer's files {}", format_bytes_up(companions)), companions > 0 ? 1 : 0, companions, "");
  add(fmt::format("the tensors outside the text part {}", format_bytes_up(kept)), kept > 0 ? 1 : 0, kept, "");
  add(fmt::format("the model {}", format_bytes_up(exported)), 1, exported, "choose a run_dir on a larger disk");
  if (config.eval.keep_best)  // a better model is written beside the old one
    add(fmt::format("{} while the best model is replaced (two copies)", format_bytes_up(2 * exported)), 2, exported,
        fmt::format("leave {} out", config.names("eval.keep_best")));
  if (scratch_bytes > 0 && !config.memory.nvme_path.empty())  // `plan --disk` assumes a drive without a path
    need.parts.push_back({.what = fmt::format("state on disk {}", format_bytes_up(scratch_bytes)),
                          .directory = config.memory.nvme_path,
                          .bytes = scratch_bytes,
                          .remedy = "name another drive in memory.nvme_path"});
  return need;
}

DiskPart token_cache_part(const TrainConfig& config, int64_t source_bytes) {
  const int64_t bytes = source_bytes / 2;
  return {.what = fmt::format("tokens of {} of data, at least {}", format_bytes(source_bytes), format_bytes(bytes)),
          .directory = config.data.cache.empty() ? user_cache_directory() + "/data" : config.data.cache,
          .bytes = bytes,
          .remedy = fmt::format("name another place in {}", config.names("data.cache"))};
}

std::string disk_problem(const DiskNeed& need, const FreeSpaceOf& free_of) {
  for (const Volume& volume : volumes_of(need, free_of)) {
    if (!volume.free || volume.free->bytes >= volume.bytes) continue;
    std::vector<std::string> remedies;
    for (const size_t i : volume.parts)
      if (!need.parts[i].remedy.empty()) remedies.push_back(need.parts[i].remedy);
    return fmt::format("the disk is too small: the run writes {} to {}: {}; {} are free there. Free some space, or {}",
                       format_bytes_up(volume.bytes), places_of(need, volume), parts_of(need, volume),
                       format_bytes(volume.free->bytes), fmt::join(remedies, ", or "));
  }
  return "";
}

void check_disk_need(const DiskNeed& need, const FreeSpaceOf& free_of) {
  if (const std::string problem = disk_problem(need, free_of); !problem.empty()) fail(ExitCode::cannot_fit, problem);
}

bool stop_fits(const DiskNeed& need, const std::string& run_dir, const FreeSpaceOf& free_of) {
  if (need.checkpoints_planned) return true;
  DiskNeed stopped = need;
  stopped.parts.push_back({.what = "a checkpoint", .directory = run_dir, .bytes = need.checkpoint_bytes});
  return disk_problem(stopped, free_of).empty();
}

std::string describe(const DiskNeed& need, const FreeSpaceOf& free_of) {
  std::string text;
  for (const Volume& volume : volumes_of(need, free_of))
    text += fmt::format("disk: {} in {}: {}{}\n", format_bytes_up(volume.bytes), places_of(need, volume),
                        parts_of(need, volume),
                        volume.free ? fmt::format("; {} free", format_bytes(volume.free->bytes)) : "");
  return text;
}

}  // namespace megatrain
