#include "megatrain/hub/export.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "megatrain/base/error.h"
#include "megatrain/hub/companions.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHeaderSlack = 256;  // length, metadata, padding
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_named_template(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.path().extension() == ".jinja" && entry.is_regular_file(ignored);
}

bool holds_only(const fs::path& directory, bool (*wanted)(const fs::directory_entry&)) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (!wanted(entry)) return false;
  }
  return !error;
}

bool is_own(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  const bool shard =
      name.starts_with("model") && (name.ends_with(".safetensors") || name.ends_with(".safetensors.partial"));
  std::error_code ignored;
  if (name == kNamedTemplates && !entry.is_symlink(ignored)) return holds_only(entry.path(), is_named_template);
  return entry.is_regular_file(ignored) &&
         (is_companion_name(name) || shard || name == kIndex || name == "config.json");
}

bool holds_only_own_files(const std::string& directory) { return holds_only(directory, is_own); }

// Absolute, links resolved, no trailing slash.
std::string resolved(const std::string& path) {
  std::error_code error;
  fs::path full = fs::weakly_canonical(fs::absolute(path), error);
  if (error) fail_io(fmt::format("cannot resolve {}: {}; check the path.", path, error.message()));
  if (full.filename().empty()) full = full.parent_path();
  return full.string();
}

ExportRequest checked(ExportRequest request) {
  if (request.directory.empty()) fail_config("the export directory is empty; give the path of a directory.");
  request.directory = resolved(request.directory);
  if (fs::exists(request.directory) && !fs::is_directory(request.directory)) {
    fail_config(fmt::format("cannot export to {}: it is a file; give the path of a directory.", request.directory));
  }
  if (request.source_directory.empty()) return request;
  request.source_directory = resolved(request.source_directory);
  if (!fs::is_directory(request.source_directory)) {
    fail_input(
        fmt::format("{} is not a directory, so no tokenizer files can be copied from it; give a model directory.",
                    request.source_directory));
  }
  if (request.source_directory == request.directory) {
    fail_config(fmt::format("cannot export to {}: it is the directory the model was read from; choose another.",
                            request.directory));
  }
  return request;
}

std::string unused_sibling(const std::string& directory) {
  std::string name = directory + ".previous";
  for (int i = 2; fs::exists(fs::symlink_status(name)); ++i) name = fmt::format("{}.previous-{}", directory, i);
  return name;
}

}  // namespace

ModelExport::ModelExport(ExportRequest request)
    : request_(checked(std::move(request))), partial_(request_.directory + ".partial") {
  std::error_code error;
  if (fs::exists(partial_.path(), error)) {  // an export that was killed
    if (!holds_only_own_files(partial_.path())) {
      fail_io(fmt::format("{} is in the way and was not left by an export; move it or choose another directory.",
                          partial_.path()));
    }
    fs::remove_all(partial_.path(), error);
  }
  fs::create_directories(partial_.path(), error);
  if (error)
    fail_io(fmt::format("cannot create {}: {}; check its parent directory.", partial_.path(), error.message()));
  partial_.created();
  write_text_file(partial_.path() + "/config.json", request_.config_json);
  copy_companions();
  open_shards();
}

void ModelExport::copy_companions() {
  const bool own_template = !request_.chat_template.empty();
  if (own_template) {
    write_text_file(partial_.path() + "/" + kTemplateFile, request_.chat_template);
    report_.copied.push_back(kTemplateFile);
  }
  if (request_.source_directory.empty()) return;
  const std::string named = partial_.path() + "/" + kNamedTemplates;
  bool made = false;
  for (const std::string& name : find_companions(request_.source_directory, !own_template)) {
    std::error_code error;
    if (!made && name.starts_with(kNamedTemplates)) made = fs::create_directory(named, error);
    if (error) fail_io(fmt::format("cannot create {}: {}; check the disk.", named, error.message()));
    write_text_file(partial_.path() + "/" + name, read_companion(request_.source_directory, name));
    report_.copied.push_back(name);
  }
  if (made) sync_directory(named);
  std::sort(report_.copied.begin(), report_.copied.end());
}

void ModelExport::open_shards() {
  std::vector<std::vector<TensorDeclaration>> shards(1);
  int64_t bytes = kHeaderSlack;
  for (const TensorDeclaration& tensor : request_.tensors) {
    const int64_t takes = tensor.bytes() + header_entry_bytes(tensor);
    if (!shards.back().empty() && bytes + takes > request_.max_shard_bytes) {
      shards.emplace_back();
      bytes = kHeaderSlack;
    }
    if (!shard_by_tensor_.emplace(tensor.name, shards.size() - 1).second) {
      fail_internal(fmt::format("tensor {} is declared twice in an export", printable(tensor.name)));
    }
    shards.back().push_back(tensor);
    bytes += takes;
    report_.tensor_bytes += tensor.bytes();
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    report_.shards.push_back(
        shards.size() == 1 ? kSingle : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    shards_.push_back(std::make_unique<SafetensorsWriter>(partial_.path() + "/" + report_.shards.back(),
                                                          std::move(shards[i]),
                                                          std::map<std::string, std::string>{{"format", "pt"}}));
  }
}

SafetensorsWriter& ModelExport::shard_of(const std::string& name) {
  const auto found = shard_by_tensor_.find(name);
  if (found == shard_by_tensor_.end()) {
    fail_internal(fmt::format("the export was given tensor {}, never declared", printable(name)));
  }
  return *shards_[found->second];
}

void ModelExport::write(const std::string& name, int64_t byte_offset, const void* data, int64_t bytes) {
  shard_of(name).write(name, byte_offset, data, bytes);
}

void ModelExport::write_f32(const std::string& name, int64_t element_offset, const float* data, int64_t count) {
  shard_of(name).write_f32(name, element_offset, data, count);
}

ExportReport ModelExport::finish() {
  for (const auto& shard : shards_) shard->finish();
  if (shards_.size() > 1) {
    nlohmann::json index;
    index["metadata"]["total_size"] = report_.tensor_bytes;
    for (const auto& [name, shard] : shard_by_tensor_) index["weight_map"][name] = report_.shards[shard];
    write_text_file(partial_.path() + "/" + kIndex, index.dump(2) + "\n");
  }
  sync_directory(partial_.path());
  put_in_place();
  sync_directory(parent_directory(request_.directory));
  return report_;
}

void ModelExport::put_in_place() {
  const std::string& directory = request_.directory;
  if (!fs::exists(directory)) {
    rename_path(partial_.path(), directory);
    partial_.keep();
    return;
  }
  const bool disposable = holds_only_own_files(directory);
  // Exchanged, the former directory bears the partial's name and goes with it.
  if (disposable && ::renameat2(AT_FDCWD, partial_.path().c_str(), AT_FDCWD, directory.c_str(), RENAME_EXCHANGE) == 0) {
    partial_.remove();
    return;
  }
  const std::string aside = unused_sibling(directory);
  rename_path(directory, aside);
  if (std::rename(partial_.path().c_str(), directory.c_str()) != 0) {
    const int error = errno;
    rename_path(aside, directory);
    fail_io(fmt::format("cannot rename {} to {}: {}; check the parent directory.", partial_.path(), directory,
                        std::strerror(error)));
  }
  partial_.keep();
  if (disposable) {
    std::error_code ignored;
    fs::remove_all(aside, ignored);
  } else {
    report_.kept = aside;
  }
}

}  // namespace megatrain
