#include "megatrain/hub/model_files.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/json_file.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kAdapter = "adapter_model.safetensors";
constexpr const char* kPickledAdapter = "adapter_model.bin";
constexpr const char* kIndex = "model.safetensors.index.json";

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Whether there are weights that only a pickle reader could open.
bool has_pickled_weights(const std::string& directory) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("pytorch_model") && (name.ends_with(".bin") || name.ends_with(".bin.index.json"))) return true;
  }
  return false;
}

[[noreturn]] void fail_without_weights(const std::string& directory) {
  if (has_pickled_weights(directory)) {
    fail_input(
        fmt::format("{0} has its weights only as pytorch_model*.bin, which megatrain does not read; convert them to "
                    "safetensors: python3 -c 'from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; "
                    "M.from_pretrained(\"{0}\").save_pretrained(\"{0}-safetensors\"); "
                    "T.from_pretrained(\"{0}\").save_pretrained(\"{0}-safetensors\")'.",
                    directory));
  }
  fail_input(fmt::format("{} has neither {} nor {}; give a Hugging Face model directory with safetensors weights.",
                         directory, kSingle, kIndex));
}

void sort_by_name(std::vector<const StoredTensor*>& tensors) { std::ranges::sort(tensors, {}, &StoredTensor::name); }

// Maps each shard's name to the tensors that the index assigns to it.
std::map<std::string, std::vector<std::string>> read_index(const std::string& path) {
  const nlohmann::json index = read_json_file(path);
  const auto weight_map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || weight_map == index.end() || !weight_map->is_object() || weight_map->empty()) {
    fail_input(fmt::format("{} has no \"weight_map\" of tensor names to file names; download it again.", path));
  }
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string()) {
      fail_input(fmt::format("{} gives {} as the file of tensor {}, expected a file name; download it again.", path,
                             printable(file.dump()), printable(tensor)));
    }
    const std::string name = file.get<std::string>();
    if (name.empty() || name.find('/') != std::string::npos || name.find("..") != std::string::npos ||
        name.find('\0') != std::string::npos) {
      fail_input(
          fmt::format("{} gives {} as the file of tensor {}, expected a plain file name in the same directory (no '/' "
                      "and no '..'); correct the index or download it again.",
                      path, printable(name), printable(tensor)));
    }
    shards[name].push_back(tensor);
  }
  return shards;
}

}  // namespace

void refuse_pickled_adapter(const std::string& directory) {
  const std::string pickled = directory + "/" + kPickledAdapter;
  if (exists(directory + "/" + kAdapter) || !exists(pickled)) return;
  fail_input(
      fmt::format("{0}/{1} is the adapter's only file of weights, and megatrain does not read pickled ones; convert it "
                  "to safetensors: python3 -c 'import torch; from safetensors.torch import save_file; "
                  "save_file({{name: tensor.contiguous() for name, tensor in torch.load(\"{0}/{1}\", "
                  "map_location=\"cpu\", weights_only=True).items()}}, \"{0}/{2}\")'.",
                  directory, kPickledAdapter, kAdapter));
}

std::string adapter_weights_file(const std::string& directory) {
  refuse_pickled_adapter(directory);
  const std::string path = directory + "/" + kAdapter;
  if (!exists(path))
    fail_input(fmt::format("{} has adapter_config.json but no {}; download it again, or give another directory.",
                           directory, kAdapter));
  return path;
}

bool is_model_directory(const std::string& directory) {
  return exists(directory + "/config.json") || exists(directory + "/adapter_config.json");
}

ModelFiles::ModelFiles(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (!exists(path)) {
    fail_input(fmt::format("{} does not exist; give a Hugging Face model directory or a .safetensors file.", path));
  }
  if (!fs::is_directory(path, ignored)) {
    if (!path.ends_with(".safetensors")) {
      fail_input(fmt::format("{} is neither a directory nor a .safetensors file; give one of these.", path));
    }
    files_.emplace_back(path);
  } else if (const std::string single = (fs::path(path) / kSingle).string(); exists(single)) {
    files_.emplace_back(single);
  } else if (const std::string index = (fs::path(path) / kIndex).string(); exists(index)) {
    open_index(index);
  } else if (const std::string adapter = (fs::path(path) / kAdapter).string(); exists(adapter)) {
    files_.emplace_back(adapter);
  } else {
    fail_without_weights(path);
  }
  gather();
}

void ModelFiles::open_index(const std::string& index_path) {
  const auto shards = read_index(index_path);
  std::string missing;
  int64_t missing_count = 0;
  for (const std::string& name : missing_weights(path_)) {
    if (missing_count++ < 8) missing += (missing.empty() ? "" : ", ") + printable(name);
  }
  if (missing_count > 0) {
    fail_input(fmt::format("{} names {} of {} shards that {} does not have: {}{}; download the missing files.",
                           index_path, missing_count, shards.size(), path_, missing, missing_count > 8 ? ", ..." : ""));
  }
  for (const auto& [name, tensors] : shards) {
    const SafetensorsFile& file = files_.emplace_back((fs::path(path_) / name).string());
    for (const std::string& tensor : tensors) {
      if (file.find(tensor) != nullptr) continue;
      fail_input(fmt::format("{} says that {} holds tensor {}, which is not in it; download both files again.",
                             index_path, file.path(), printable(tensor)));
    }
  }
}

void ModelFiles::gather() {
  for (const SafetensorsFile& file : files_) {
    for (const StoredTensor& tensor : file.tensors()) tensors_.push_back(&tensor);
  }
  sort_by_name(tensors_);
  const auto twin = std::adjacent_find(tensors_.begin(), tensors_.end(),
                                       [](const StoredTensor* a, const StoredTensor* b) { return a->name == b->name; });
  if (twin != tensors_.end()) {
    fail_input(
        fmt::format("tensor {} is in both {} and {}, expected in only one; remove the files that do not "
                    "belong to this model or download it again.",
                    printable((*twin)->name), file_of(**twin), file_of(**(twin + 1))));
  }
}

void ModelFiles::take_text_model() {
  std::vector<std::string> names;
  for (const StoredTensor* tensor : tensors_) names.push_back(tensor->name);
  text_names_ = find_text_names(names);
  exchange_names(false);
}

void ModelFiles::rename(const TextNames& names) {
  text_names_ = names;
  exchange_names(true);
}

void ModelFiles::exchange_names(bool whole) {
  std::vector<const StoredTensor*> text;
  for (const StoredTensor* tensor : tensors_) {
    const std::optional<std::string> name = text_names_.in_model(tensor->name);
    if (!name) {
      (whole ? text : other_parts_).push_back(tensor);
    } else if (*name == tensor->name) {
      text.push_back(tensor);
    } else {
      StoredTensor& renamed = renamed_.emplace_back(*tensor);
      renamed.name = *name;
      text.push_back(&renamed);
    }
  }
  sort_by_name(text);
  tensors_ = std::move(text);
}

std::vector<std::string> missing_weights(const std::string& directory) {
  const std::string index = (fs::path(directory) / kIndex).string();
  if (exists((fs::path(directory) / kSingle).string())) return {};
  std::vector<std::string> missing;
  if (!exists(index)) {
    if (!has_pickled_weights(directory)) missing.push_back(kSingle);
    return missing;
  }
  for (const auto& [name, tensors] : read_index(index)) {
    if (!exists((fs::path(directory) / name).string())) missing.push_back(name);
  }
  return missing;
}

const StoredTensor* ModelFiles::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const StoredTensor* tensor, std::string_view key) { return tensor->name < key; });
  return found != tensors_.end() && (*found)->name == name ? *found : nullptr;
}

bool ModelFiles::of_adapter() const { return files_.front().path().ends_with(kAdapter); }

const StoredTensor& ModelFiles::parameter(std::string_view name, const std::vector<int64_t>& shape) const {
  const StoredTensor* tensor = find(name);
  const std::string shown = printable(text_names_.in_files(std::string(name)));
  const char* together = of_adapter()
                             ? "check that the adapter was made for this base, and that both files are its own."
                             : "check that config.json and weights belong together.";
  if (tensor == nullptr) {
    fail_input(fmt::format("{} has no tensor {}, which its {}; {}", path_, shown,
                           of_adapter() ? "adapter_config.json and the base ask for" : "config.json asks for",
                           together));
  }
  if (tensor->shape != shape) {
    fail_input(fmt::format("{}: tensor {} has shape {}, but {} {}; {}", file_of(*tensor), shown,
                           format_shape(tensor->shape),
                           of_adapter() ? "adapter_config.json and the base ask for" : "config.json asks for",
                           format_shape(shape), together));
  }
  if (!parameter_type(tensor->dtype)) {
    fail_input(
        fmt::format("{}: tensor {} has {} elements, expected F32, F16 or BF16; use the model's "
                    "unquantised weights.",
                    file_of(*tensor), shown, stored_type_name(tensor->dtype)));
  }
  return *tensor;
}

void ModelFiles::check_whole() const {
  for (const SafetensorsFile& file : files_) file.check_whole();
}

const SafetensorsFile& ModelFiles::holder_of(const StoredTensor& tensor) const {
  for (const SafetensorsFile& file : files_) {
    const int64_t offset = file.offset_of(tensor);
    if (offset >= 0 && offset <= file.bytes()) return file;
  }
  fail_internal("a tensor was asked for that none of the model's files holds");
}

}  // namespace megatrain
