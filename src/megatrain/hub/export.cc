#include "megatrain/hub/export.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/hub/companions.h"
#include "megatrain/io/json.h"
#include "megatrain/io/replace.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHeaderSlack = 256;  // length, metadata, padding
constexpr const char* kPrevious = ".previous";
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kAdapterFile = "adapter_model.safetensors";
constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr const char* kIndexFile = "model.safetensors.index.json";

bool holds_only(const fs::path& directory, bool (*wanted)(const fs::directory_entry&)) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (!wanted(entry)) return false;
  }
  return !error;
}

// NAME of NAME.PID-N.partial, which write_text_file uses while it writes.
std::string without_partial_suffix(const std::string& name) {
  if (!name.ends_with(".partial")) return name;
  const fs::path stem = fs::path(name).stem();
  const std::string number = stem.extension().string();
  return number.size() > 1 && number.find_first_not_of("-0123456789", 1) == std::string::npos ? stem.stem().string()
                                                                                              : name;
}

bool is_own_template(const fs::directory_entry& entry) {
  std::error_code ignored;
  return without_partial_suffix(entry.path().filename().string()).ends_with(".jinja") && entry.is_regular_file(ignored);
}

bool is_own(const fs::directory_entry& entry) {
  const std::string name = without_partial_suffix(entry.path().filename().string());
  const bool shard = (name.starts_with("model") || name.starts_with("adapter_model")) &&
                     (name.ends_with(".safetensors") || name.ends_with(".safetensors.partial"));
  std::error_code ignored;
  if (name == kNamedTemplates && !entry.is_symlink(ignored)) return holds_only(entry.path(), is_own_template);
  return entry.is_regular_file(ignored) &&
         (is_companion_name(name) || shard || name == kIndexFile || name == "config.json" || name == kAdapterConfig);
}

bool holds_only_own_files(const std::string& directory) { return holds_only(directory, is_own); }

// The absolute path with links resolved and no trailing slash.
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
  std::string name = directory + kPrevious;
  for (int i = 2; fs::exists(fs::symlink_status(name)); ++i) name = fmt::format("{}{}-{}", directory, kPrevious, i);
  return name;
}

// Creates an empty directory, removing what a killed export left under that name.
void make_partial(PartialPath& partial) {
  std::error_code error;
  if (fs::exists(partial.path(), error)) {
    if (!holds_only_own_files(partial.path())) {
      fail_io(fmt::format("{} is in the way and was not left by an export; move it or choose another directory.",
                          partial.path()));
    }
    fs::remove_all(partial.path(), error);
  }
  fs::create_directories(partial.path(), error);
  if (error) fail_io(fmt::format("cannot create {}: {}; check its parent directory.", partial.path(), error.message()));
  partial.created();
}

// Writes config.json, the tokenizer and templates. Returns the names of the copied files.
std::vector<std::string> write_small_files(const ExportRequest& request, const std::string& into) {
  // Beside adapters transformers would take a config.json for that of a whole model.
  const bool adapter = !request.adapter_json.empty();
  write_text_file(into + "/" + (adapter ? kAdapterConfig : "config.json"),
                  adapter ? request.adapter_json : request.config_json);
  std::vector<std::string> copied;
  const bool own_template = !request.chat_template.empty();
  if (own_template) {
    write_text_file(into + "/" + kTemplateFile, request.chat_template);
    copied.push_back(kTemplateFile);
  }
  if (request.source_directory.empty()) return copied;
  const std::string named = into + "/" + kNamedTemplates;
  bool made = false;
  for (const std::string& name : find_companions(request.source_directory, !own_template)) {
    std::error_code error;
    if (!made && name.starts_with(kNamedTemplates)) made = fs::create_directory(named, error);
    if (error) fail_io(fmt::format("cannot create {}: {}; check the disk.", named, error.message()));
    write_text_file(into + "/" + name, read_companion(request.source_directory, name));
    copied.push_back(name);
  }
  if (made) sync_directory(named);
  std::sort(copied.begin(), copied.end());
  return copied;
}

// Returns, and logs, where an existing directory with foreign files was moved; empty if there was none.
std::string put_in_place(PartialPath& partial, const std::string& directory) {
  sync_directory(partial.path());
  const bool disposable = fs::exists(directory) && holds_only_own_files(directory);
  const std::string aside = unused_sibling(directory);
  const std::string former = replace_directory(partial.path(), directory, aside);
  partial.keep();
  sync_new_name(directory);
  if (former.empty()) return "";
  if (disposable) {
    std::error_code code;
    fs::remove_all(former, code);
    if (code) log_warn(fmt::format("could not remove {}, the former {}: {}", former, directory, code.message()));
    return "";
  }
  if (former != aside) rename_path(former, aside);
  log_warn(fmt::format("the former {} is {} now: it held files that no export writes", directory, aside));
  return aside;
}

}  // namespace

std::vector<std::string> write_companions(ExportRequest given) {
  const ExportRequest request = checked(std::move(given));
  PartialPath partial(request.directory + ".partial");
  make_partial(partial);
  std::vector<std::string> copied = write_small_files(request, partial.path());
  put_in_place(partial, request.directory);
  return copied;
}

ModelExport::ModelExport(ExportRequest request)
    : request_(checked(std::move(request))), partial_(request_.directory + ".partial") {
  make_partial(partial_);
  report_.copied = write_small_files(request_, partial_.path());
  open_shards();
}

void ModelExport::open_shards() {
  std::vector<std::vector<TensorDeclaration>> shards(1);
  int64_t bytes = kHeaderSlack;
  for (const TensorDeclaration& tensor : request_.tensors) {
    const int64_t takes = tensor.bytes() + header_entry_bytes(tensor);
    const bool whole = !request_.adapter_json.empty();  // PEFT knows no shards
    if (!whole && !shards.back().empty() && bytes + takes > request_.max_shard_bytes) {
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
    report_.shards.push_back(!request_.adapter_json.empty() ? kAdapterFile
                             : shards.size() == 1
                                 ? kSingleFile
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
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
    write_text_file(partial_.path() + "/" + kIndexFile, index.dump(2) + "\n");
  }
  report_.kept = put_in_place(partial_, request_.directory);
  return report_;
}

void keep_aside(const std::string& directory, const std::string& why) {
  if (!fs::exists(fs::symlink_status(directory))) return;
  const std::string aside = unused_sibling(directory);
  rename_path(directory, aside);
  log_warn(fmt::format("the former {} is {} now: {}", directory, aside, why));
}

void recover_export(const std::string& directory) {
  std::error_code code;
  const std::string partial = directory + ".partial", previous = directory + kPrevious;
  if (!fs::exists(directory) && fs::exists(previous)) {
    rename_path(previous, directory);
    log_info(fmt::format("restored {}: an export that was replacing it was killed", directory));
  }
  if (!fs::exists(partial) || !holds_only_own_files(partial)) return;
  fs::remove_all(partial, code);
  if (code) {
    log_warn(fmt::format("could not remove {}, which a killed export left: {}", partial, code.message()));
  } else {
    log_info(fmt::format("removed {}, which a killed export left", partial));
  }
}

}  // namespace megatrain
