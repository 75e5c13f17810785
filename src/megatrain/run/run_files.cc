#include "megatrain/run/run_files.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/replace.h"
#include "megatrain/io/sealed_json.h"
#include "megatrain/model/model_source.h"
#include "megatrain/train/setup.h"

namespace megatrain {

namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string hash_path(const std::string& run) { return run + "/hash.json"; }

}  // namespace

bool is_run_directory(const std::string& path) { return exists(path + "/config.resolved.yaml"); }

void write_run_hash(const std::string& run_dir, const StateHash& state, const StateHash& model) {
  nlohmann::json document = to_json(state);
  document["model"] = model.weights;
  write_text_file(hash_path(run_dir), json_text(sealed(document), 1) + "\n");
}

std::optional<RunHash> read_run_hash(const std::string& run_dir) {
  const std::string path = hash_path(run_dir);
  if (!can_read(path)) return {};
  nlohmann::json hash = read_json_file(path);
  const bool seal = hash.is_object() && (hash.contains("checksum") || hash.contains("model"));
  if (seal && !seal_holds(hash))
    fail_input(fmt::format(
        "{} is damaged: it does not have the checksum that it names; the run's model is not affected", path));
  for (const char* key : {"step", "state", "weights", "tensors"}) {
    if (!hash.is_object() || !hash.contains(key)) fail_input(fmt::format("{} is damaged: it has no \"{}\"", path, key));
  }
  if (!hash.at("step").is_number_integer() || hash.at("step") < 0)
    fail_input(fmt::format("{} is damaged: its \"step\" is no whole number", path));
  RunHash run{.step = hash.at("step").get<int64_t>()};
  if (seal && hash.contains("model") && hash.at("model").is_string()) run.model = hash.at("model").get<std::string>();
  hash.erase("model");
  hash.erase("checksum");
  run.state = std::move(hash);
  return run;
}

void verify_run_model(const std::string& run_dir, const RunHash& hash) {
  const std::string path = run_dir + "/model", found = hash_directory(path).weights;
  if (hash.model.empty() || found == hash.model) return;
  fail_input(
      fmt::format("{} is damaged: the hash of its weights is {}, the run wrote {}; bring it back from a copy or, "
                  "where a checkpoint is left, with --resume",
                  path, found, hash.model));
}

RunFiles read_run(const std::string& path) {
  constexpr int64_t kMaxConfigBytes = 16 * kMiB;
  if (!is_run_directory(path)) {
    fail_input(fmt::format("{} is not a run: {}; give the run_dir of a 'megatrain train'", path,
                           exists(path) ? "it has no config.resolved.yaml" : "it does not exist"));
  }
  RunFiles run;
  run.path = path.substr(0, path.find_last_not_of('/') + 1);
  run.config = load_config(run.path + "/config.resolved.yaml", {},
                           {.model = false, .data = false, .steps = false, .idle = true});
  if (exists(run.path + "/model/config.json")) run.hash = read_run_hash(run.path);
  if (run.hash) run.complete_step = run.hash->step;
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
