#include "megatrain/hub/hash.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/tensor/moment_codes.h"

namespace megatrain {
namespace {

// Hashes the fp32 values of a tensor in a state file, however it is stored.
void hash_values(const ModelFiles& model, const StoredTensor& tensor, StateHasher& hasher) {
  constexpr int64_t kPiece = int64_t{1} << 20;  // elements
  std::vector<float> values, scales;
  int64_t row = 1;
  if (tensor.dtype == StoredType::u8) {
    const StoredTensor* scale = model.find(tensor.name + kScaleSuffix);
    if (!scale || scale->dtype != StoredType::f32 || scale->shape.empty() || scale->shape.size() > 2)
      fail_input(fmt::format("{}: the codes of {} have no scales", model.files().front().path(), tensor.name));
    scales.resize(static_cast<size_t>(scale->elements()));
    read_as_f32(*scale, 0, scale->elements(), scales.data());
    row = scale->shape.size() == 2 ? tensor.elements() / std::max<int64_t>(scale->shape.front(), 1) : tensor.elements();
    if (row < 1 || tensor.elements() % row != 0 || scale->shape.back() != row_state_blocks(row) ||
        scale->elements() != tensor.elements() / row * row_state_blocks(row))
      fail_input(fmt::format("{}: the scales of {} do not have its shape", model.files().front().path(), tensor.name));
  }
  for (int64_t begin = 0; begin < tensor.elements(); begin += kPiece) {
    const int64_t count = std::min(kPiece, tensor.elements() - begin);
    values.resize(static_cast<size_t>(count));
    if (tensor.dtype == StoredType::u8) {
      const std::span codes(reinterpret_cast<const uint8_t*>(tensor.data) + begin, static_cast<size_t>(count));
      decode_moments(tensor.name.ends_with(".exp_avg"), row, begin, codes,
                     std::span(scales).subspan(static_cast<size_t>(state_block_of(begin, row))), values.data());
    } else {
      read_as_f32(tensor, begin, count, values.data());
    }
    hasher.update(tensor.name, values.data(), values.size() * sizeof(float));
  }
}

StateHash hash_model(const ModelFiles& model) {
  StateHasher hasher;
  const bool stored = model.files().front().metadata().contains(kStoredMoments);
  for (const StoredTensor* tensor : model.tensors()) {
    if (!stored) {
      hasher.update(tensor->name, tensor->data, static_cast<size_t>(tensor->bytes));
    } else if (!tensor->name.ends_with(kScaleSuffix)) {
      hash_values(model, *tensor, hasher);
    }
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
