#include "megatrain/run/trackers.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/shell_word.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

struct Tracker {
  const char* name;
  const char* program;
  const char* script;
  const char* project;  // the script's option for track.project
};
constexpr Tracker kTrackers[] = {
    {"wandb", "Weights & Biases", "to_wandb.py", "--project"},
    {"mlflow", "MLflow", "to_mlflow.py", "--experiment"},
    {"trackio", "trackio", "to_trackio.py", "--project"},
};

// Above the program: its clone, or where it was installed.
std::string path_of_script(const char* script) {
  constexpr const char* kFolders[] = {"examples/track", "share/doc/megatrain/examples/track"};
  std::error_code none;
  for (fs::path above = fs::read_symlink("/proc/self/exe", none).parent_path(); above.has_relative_path();
       above = above.parent_path()) {
    for (const char* folder : kFolders) {
      if (const fs::path path = above / folder / script; fs::exists(path, none)) return path.string();
    }
  }
  return fmt::format("examples/track/{}", script);  // of a clone
}

std::string command_of(const Tracker& tracker, const TrainConfig& config) {
  std::string command =
      fmt::format("python3 {} {}", shell_word(path_of_script(tracker.script)), shell_word(config.run_dir));
  if (!config.track.project.empty())
    command += fmt::format(" {} {}", tracker.project, shell_word(config.track.project));
  if (!config.track.name.empty()) command += fmt::format(" --name {}", shell_word(config.track.name));
  return command;
}

}  // namespace

std::vector<TrackCommand> track_commands(const TrainConfig& config) {
  std::vector<TrackCommand> commands;
  for (const std::string& name : config.track.to) {
    if (name == "tensorboard")
      commands.push_back(
          {"TensorBoard", fmt::format("tensorboard --logdir {}", shell_word(config.run_dir + "/tensorboard"))});
    for (const Tracker& tracker : kTrackers)
      if (name == tracker.name) commands.push_back({tracker.program, command_of(tracker, config)});
  }
  return commands;
}

}  // namespace megatrain
