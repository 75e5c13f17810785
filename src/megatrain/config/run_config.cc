#include "megatrain/config/run_config.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

// Whether it is a file with a JSON object that has one of the keys. A file that cannot be read is not: its real reader
// reports that.
bool is_object_with(const std::string& path, std::initializer_list<const char*> keys) {
  constexpr int64_t kMostBytes = kMiB;  // maximum size of a configuration
  if (!path.ends_with(".json") || !is_file(path) || fs::file_size(path) > static_cast<uintmax_t>(kMostBytes))
    return false;
  const nlohmann::json json = nlohmann::json::parse(read_text_file(path, kMostBytes), nullptr, false);
  return json.is_object() && std::any_of(keys.begin(), keys.end(), [&](const char* key) { return json.contains(key); });
}

void refuse_other_file(const std::string& path) {
  if (path.ends_with(".jsonl") && is_file(path))
    fail_config(
        fmt::format("{0} looks like data, not a training configuration; write a CONFIG.yaml that has 'data.train: {0}' "
                    "and names the model",
                    path));
  if (is_object_with(path, {"architectures", "model_type"}))
    fail_config(
        fmt::format("{0} is the configuration of a model, not of a training run; write a CONFIG.yaml that has "
                    "'model.config: {0}' for random weights, or its directory as 'model.path', and names the data",
                    path));
}

TrainConfig checked(TrainConfig config) {
  const std::string& tokenizer = config.data.tokenizer;
  if (is_object_with(tokenizer, {"architectures", "model_type", "tokenizer_class", "added_tokens_decoder"}))
    fail_config(
        fmt::format("{} is {}, which is not a tokenizer.json; give a directory that has one, or the file itself",
                    config.names("data.tokenizer"), tokenizer));
  return config;
}

}  // namespace

TrainConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides,
                            const ConfigNeeds& needs) {
  refuse_other_file(path);
  return checked(load_config(path, overrides, needs));
}

TrainConfig parse_run_config(const std::string& text, const std::string& name,
                             const std::vector<std::string>& overrides, const ConfigNeeds& needs) {
  return checked(parse_config(text, name, overrides, needs));
}

}  // namespace megatrain
