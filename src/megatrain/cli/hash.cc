#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/hub/hash.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

// A run's hash is that of its final state, or of its newest checkpoint if it has not finished. Whatever still holds
// that state is read completely and checked against the recorded hash.
nlohmann::json hash_run(const std::string& path) {
  const auto checkpoints = list_checkpoints(path);
  if (const std::optional<RunHash> hash = read_run_hash(path)) {
    for (const auto& [step, checkpoint] : checkpoints) {
      if (step == hash->step) verify_checkpoint(read_checkpoint(checkpoint));
    }
    if (fs::exists(path + "/model")) verify_run_model(path, *hash);
    return hash->state;
  }
  if (!checkpoints.empty()) return to_json(verify_checkpoint(read_checkpoint(checkpoints.back().second)));
  fail_input(
      fmt::format("{} is a run that has neither finished nor saved a checkpoint; there is no state to hash yet", path));
}

nlohmann::json hash_path(const std::string& given) {
  const std::string path = find_model_or_adapter(given, ModelParts::weights);
  if (!fs::exists(path))
    fail_input(
        fmt::format("{} does not exist; give a run directory, a checkpoint, a Hugging Face directory or a safetensors "
                    "file",
                    path));
  if (!fs::is_directory(path)) return to_json(hash_file(path));
  if (is_run_directory(path)) return hash_run(path);
  if (is_checkpoint_directory(path)) return to_json(verify_checkpoint(read_checkpoint(path)));
  return to_json(hash_model_of_run(path));
}

}  // namespace

int verb_hash(const Arguments& arguments) {
  const nlohmann::json hash = hash_path(arguments.one("RUN, DIR or FILE"));
  if (arguments.json()) {
    fmt::print("{}\n", json_text(hash, 1));
    return 0;
  }
  for (const char* key : {"step", "state", "weights"}) {
    if (!hash.at(key).is_null())
      fmt::print("{:<8} {}\n", key, hash.at(key).is_string() ? hash.at(key).get<std::string>() : hash.at(key).dump());
  }
  return 0;
}

}  // namespace megatrain
