#include "megatrain/train/run_files.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"
#include "megatrain/train/setup.h"

namespace megatrain {

namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::optional<int64_t> complete_step(const std::string& run) {
  if (!exists(run + "/hash.json") || !exists(run + "/model/config.json")) return {};
  const nlohmann::json hash = read_json_file(run + "/hash.json");
  if (!hash.is_object() || !hash.contains("step") || !hash.at("step").is_number_integer())
    fail_input(fmt::format("{}/hash.json has no whole number \"step\"; the run is damaged", run));
  return hash.at("step").get<int64_t>();
}

}  // namespace

bool is_run_directory(const std::string& path) { return exists(path + "/config.resolved.yaml"); }

RunFiles read_run(const std::string& path) {
  constexpr int64_t kMaxConfigBytes = 16 * kMiB;
  if (!is_run_directory(path)) {
    fail_input(fmt::format("{} is not a run: {}; give the run_dir of a 'megatrain train'", path,
                           exists(path) ? "it has no config.resolved.yaml" : "it does not exist"));
  }
  RunFiles run;
  run.path = path.substr(0, path.find_last_not_of('/') + 1);
  run.config = load_config(run.path + "/config.resolved.yaml", {}, {.model = false, .data = false, .steps = false});
  run.complete_step = complete_step(run.path);
  const TrainConfig::Model& model = run.config.model;
  const std::string source = model.path.empty() ? "" : model.path + "/config.json";
  for (const std::string& file : {run.path + "/model_config.json", source, model.config}) {
    if (file.empty() || !exists(file)) continue;
    run.model_config = read_text_file(file, kMaxConfigBytes);
    run.model_config_path = file;
    break;
  }
  if (!source.empty() && exists(source)) {
    run.tokenizer_directory = model.path;
  } else if (!source.empty() && run.complete_step) {
    run.tokenizer_directory = run.path + "/model";
  } else if (source.empty()) {
    run.tokenizer_directory = companion_directory(run.config, "");
  }
  return run;
}

}  // namespace megatrain
