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
    hasher.update(tensor->name, tensor->data, static_cast<size_t>(tensor->bytes));
    release_pages(*tensor);
  }
  model.check_whole();
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

void StateHasher::update(const std::string& name, const void* data, size_t bytes) {
  update_together(name, data, bytes);
  update_each(name, data, bytes);
}

void StateHasher::update_together(const std::string& name, const void* data, size_t bytes) {
  state_.update(data, bytes);
  if (is_moment(name)) {
    moments_ = true;
  } else {
    weights_.update(data, bytes);
  }
}

void StateHasher::update_each(const std::string& name, const void* data, size_t bytes) {
  if (name != name_) {
    ensure(!name_ || *name_ < name, "tensors are hashed in ascending order of their names");
    end_tensor();
    name_ = name;
  }
  tensor_.update(data, bytes);
}

void StateHasher::end_tensor() {
  if (name_) tensors_[*name_] = tensor_.digest();
  tensor_.reset();
}

StateHash StateHasher::finish(std::optional<int64_t> step) {
  end_tensor();
  return {moments_ ? state_.digest() : "", weights_.digest(), tensors_, step};
}

StateHash hash_file(const std::string& path) { return hash_model(ModelFiles(path)); }

StateHash hash_directory(const std::string& path) { return hash_model(ModelFiles(path)); }

}  // namespace megatrain
