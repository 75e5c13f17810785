#include "megatrain/hub/hash.h"

#include <charconv>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/hub/model_files.h"

namespace megatrain {
namespace {

StateHash hash_model(const ModelFiles& model) {
  StateHasher hasher;
  for (const StoredTensor* tensor : model.tensors()) {
    hasher.begin_tensor(tensor->name);
    hasher.update(tensor->data, static_cast<size_t>(tensor->bytes));
    hasher.end_tensor();
    release_pages(*tensor);
  }
  std::optional<int64_t> step;
  const auto& metadata = model.files().front().metadata();
  if (const auto found = metadata.find("step"); found != metadata.end()) {
    const std::string& text = found->second;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) step = number;
  }
  return hasher.finish(step);
}

}  // namespace

nlohmann::json to_json(const StateHash& hash) {
  nlohmann::json json = {{"step", nullptr}, {"state", nullptr}, {"weights", hash.weights}, {"tensors", hash.tensors}};
  if (hash.step) json["step"] = *hash.step;
  if (!hash.state.empty()) json["state"] = hash.state;
  return json;
}

bool is_moment(const std::string& name) { return name.ends_with(".exp_avg") || name.ends_with(".exp_avg_sq"); }

void StateHasher::begin_tensor(const std::string& name) {
  ensure(!open_, "one tensor is hashed at a time");
  ensure(tensors_.empty() || name_ < name, "tensors are hashed in ascending order of their names");
  name_ = name;
  open_ = true;
  tensor_.reset();
}

void StateHasher::update(const void* data, size_t bytes) {
  ensure(open_, "hashed bytes belong to a tensor");
  tensor_.update(data, bytes);
  state_.update(data, bytes);
  if (!is_moment(name_)) weights_.update(data, bytes);
}

void StateHasher::end_tensor() {
  ensure(open_, "a tensor ends that began");
  open_ = false;
  moments_ = moments_ || is_moment(name_);
  tensors_[name_] = tensor_.digest();
}

StateHash StateHasher::finish(std::optional<int64_t> step) {
  ensure(!open_, "every hashed tensor has ended");
  return {moments_ ? state_.digest() : "", weights_.digest(), tensors_, step};
}

StateHash hash_file(const std::string& path) { return hash_model(ModelFiles(path)); }

StateHash hash_directory(const std::string& path) { return hash_model(ModelFiles(path)); }

}  // namespace megatrain
