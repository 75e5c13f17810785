#include "megatrain/model/files/kept_tensors.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/model/family.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/files/unused_tensors.h"
#include "megatrain/model/model.h"
#include "megatrain/model/multimodal.h"

namespace megatrain {

namespace {

constexpr int64_t kCopyBytes = 8 * kMiB;
constexpr const char* kModelPrefix = "text_model_prefix";  // in the metadata of a copy
constexpr const char* kHeadPrefix = "text_head_prefix";

// "vision_tower", or "model.visual": the module of the whole model that has the tensor.
std::string part_of(const std::string& name) {
  const size_t first = name.find('.');
  return name.substr(0, name.starts_with("model.") ? name.find('.', first + 1) : first);
}

bool is_prediction(const std::string& part) { return part == "mtp" || part == "model.mtp"; }

}  // namespace

KeptTensors::KeptTensors(const std::string& directory, const ModelConfig& config) {
  if (config.part_of.empty()) {
    names_ = family_of(config).file_names;
    return;
  }
  if (directory.empty())
    fail_input(
        fmt::format("the files of the {} that the run began with are gone, and its tensors outside the text part "
                    "with them; bring them back",
                    config.part_of));
  const std::string copy = directory + "/" + kKeptFile;
  std::error_code none;
  if (std::filesystem::exists(copy, none)) {
    files_ = std::make_unique<const ModelFiles>(copy);
    const std::map<std::string, std::string>& about = files_->files().front().metadata();
    if (!about.contains(kModelPrefix) || !about.contains(kHeadPrefix))
      fail_input(
          fmt::format("{} does not say how the text model's tensors are named; bring it back from a copy", copy));
    names_ = {.model = about.at(kModelPrefix), .head = about.at(kHeadPrefix)};
    for (const StoredTensor* tensor : files_->tensors()) add(tensor->name, *tensor);
    return;
  }
  files_ = std::make_unique<const ModelFiles>(open_model_files(directory));
  names_ = files_->text_names();
  for (const StoredTensor* tensor : files_->other_parts()) add(tensor->name, *tensor);
  const std::vector<LayerLayout> layouts = model_layouts(config);
  std::vector<const LayerLayout*> pointers;
  for (const LayerLayout& layout : layouts) pointers.push_back(&layout);
  for (const std::string& name : match_weights(*files_, pointers).unused) {
    if (name != kHeadName) add(names_.in_files(name), *files_->find(name));
  }
  std::ranges::sort(tensors_, {}, [](const Tensor& tensor) { return tensor.declaration.name; });
}

void KeptTensors::add(const std::string& name, const StoredTensor& tensor) {
  if (tensor.dtype == StoredType::f8_e4m3 || tensor.dtype == StoredType::f8_e5m2)
    fail_input(
        fmt::format("{}: tensor {} is {}, and it is not of the text part: an export, which is never in fp8, could not "
                    "keep it; give the release in bf16",
                    files_->file_of(tensor), name, stored_type_name(tensor.dtype)));
  tensors_.push_back({{.name = name, .shape = tensor.shape, .copied = tensor.dtype}, tensor.data});
}

int64_t KeptTensors::bytes() const {
  int64_t sum = 0;
  for (const Tensor& tensor : tensors_) sum += tensor.declaration.bytes();
  return sum;
}

void KeptTensors::declare(std::vector<TensorDeclaration>& declarations) const {
  for (const Tensor& tensor : tensors_) declarations.push_back(tensor.declaration);
}

void KeptTensors::copy(const Write& write) const {
  for (const Tensor& tensor : tensors_) {
    const int64_t bytes = tensor.declaration.bytes();
    for (int64_t at = 0; at < bytes; at += kCopyBytes)
      write(tensor.declaration.name, at, tensor.data + at, std::min(kCopyBytes, bytes - at));
    release_pages({.name = {}, .shape = {}, .data = tensor.data, .bytes = bytes});
  }
  check_whole();
}

void KeptTensors::check_whole() const {
  if (files_) files_->check_whole();
}

void KeptTensors::write_copy(const std::string& directory) const {
  std::vector<TensorDeclaration> declarations;
  declare(declarations);
  SafetensorsWriter out(directory + "/" + kKeptFile, std::move(declarations),
                        {{"format", "pt"}, {kModelPrefix, names_.model}, {kHeadPrefix, names_.head}});
  copy([&](const std::string& name, int64_t offset, const std::byte* data, int64_t bytes) {
    out.write(name, offset, data, bytes);
  });
  out.finish();
}

std::string KeptTensors::description() const {
  if (tensors_.empty()) return "";
  std::set<std::string> parts;
  for (const Tensor& tensor : tensors_) parts.insert(part_of(tensor.declaration.name));
  return fmt::format("{} tensors, {} ({})", tensors_.size(), format_bytes(bytes()), fmt::join(parts, ", "));
}

bool KeptTensors::has_prediction_layers() const {
  return std::ranges::any_of(tensors_,
                             [](const Tensor& tensor) { return is_prediction(part_of(tensor.declaration.name)); });
}

}  // namespace megatrain
