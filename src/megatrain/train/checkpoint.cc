#include "megatrain/train/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"

namespace megatrain {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

std::string folder(const std::string& run_dir) { return run_dir + "/checkpoints"; }

DType type_from(const std::string& name) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    if (name == dtype_name(type)) return type;
  }
  fail_input("unknown tensor type '" + name + "'");
}

}  // namespace

std::vector<std::pair<int64_t, std::string>> list_checkpoints(const std::string& run_dir) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder(run_dir), none)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("step-", 0) != 0 || name.find_first_not_of("0123456789", 5) != std::string::npos || name.size() < 6)
      continue;
    found.emplace_back(std::stoll(name.substr(5)), entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void save_checkpoint(const std::string& run_dir, int64_t step, const json& identity, const TensorTypes& types,
                     const std::vector<LayerRecord>& records, int64_t keep, int threads) {
  const std::string final_path = fmt::format("{}/step-{:08d}", folder(run_dir), step);
  PartialPath partial(final_path + ".partial");
  std::error_code code;
  fs::remove_all(partial.path(), code);
  fs::create_directories(partial.path(), code);
  if (code)
    fail_io(fmt::format("could not create {}: {}; check that the disk is writable", partial.path(), code.message()));
  partial.created();
  const StateHash hash = save_state(partial.path() + "/state.safetensors", step, records, threads);
  json names = json::object();
  for (const auto& [name, type] : types) names[name] = dtype_name(type);
  const json document = {{"step", step}, {"identity", identity}, {"types", names}, {"state", hash.state}};
  write_text_file(partial.path() + "/checkpoint.json", document.dump(1) + "\n");
  sync_directory(partial.path());
  fs::remove_all(final_path, code);
  rename_path(partial.path(), final_path);
  partial.keep();
  sync_directory(folder(run_dir));
  const auto all = list_checkpoints(run_dir);
  for (size_t i = 0; i + static_cast<size_t>(keep) < all.size(); ++i) fs::remove_all(all[i].second, code);
}

Checkpoint read_checkpoint(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path = path;
  try {
    const json document = read_json_file(checkpoint.path + "/checkpoint.json");
    checkpoint.step = document.at("step").get<int64_t>();
    checkpoint.identity = document.at("identity");
    checkpoint.state_hash = document.at("state").get<std::string>();
    for (const auto& [name, type] : document.at("types").items())
      checkpoint.types[name] = type_from(type.get<std::string>());
  } catch (const std::exception& error) {
    fail(ExitCode::corrupt_checkpoint,
         fmt::format("{}: the checkpoint cannot be read: {}; remove it to resume from an older one", checkpoint.path,
                     error.what()));
  }
  return checkpoint;
}

std::optional<Checkpoint> newest_checkpoint(const std::string& run_dir) {
  const auto all = list_checkpoints(run_dir);
  if (all.empty()) return {};
  return read_checkpoint(all.back().second);
}

void restore_checkpoint(const Checkpoint& checkpoint, std::vector<LayerRecord>& records, int threads) {
  load_state(checkpoint.path + "/state.safetensors", records, threads);
  const std::string found = hash_state(records, checkpoint.step, threads).state;
  if (found != checkpoint.state_hash) {
    fail(ExitCode::corrupt_checkpoint, fmt::format("{}: the state's hash is {}, expected {}: the file is damaged; "
                                                   "remove this checkpoint to resume from an older one",
                                                   checkpoint.path, found, checkpoint.state_hash));
  }
}

}  // namespace megatrain
