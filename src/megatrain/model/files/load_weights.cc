#include "megatrain/model/files/load_weights.h"

#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/finite.h"
#include "megatrain/base/log.h"
#include "megatrain/base/number_text.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/files/unused_tensors.h"
#include "megatrain/model/model.h"
#include "megatrain/model/multimodal.h"
#include "megatrain/store/pieces.h"
#include "megatrain/tensor/fp8.h"

namespace megatrain {

namespace {

void check_finite(const std::string& directory, const TensorPiece& piece, const float* values) {
  const bool bf16 = piece.record->dtype() == DType::bf16;
  const int64_t at = first_not_finite(values, piece.count, bf16 ? kMasterFiniteBelow : kFiniteBelow);
  if (at >= 0) fail_not_finite(directory, piece.tensor->name, piece.begin + at, values[at]);
}

// Formats of packed weights are normally announced in config.json. Without that, they are detected by the tensor names.
void log_unannounced(const ModelFiles& files, const TensorSource& source) {
  const std::string config = files.path() + "/config.json";
  std::error_code none;
  if (std::filesystem::exists(config, none) && !read_json_file(config).contains("quantization_config"))
    log_info(fmt::format("{} has no 'quantization_config', but {} is in {} by its name and is read as such", config,
                         source.values->name, packing_name(source.packing)));
}

// Says how many matrices are in fp8, and what becomes of them.
void log_packed(const ModelFiles& files, const std::vector<const LayerLayout*>& layouts) {
  int64_t packed = 0, unpacked = 0;
  bool announced = false;
  for (const LayerLayout* layout : layouts) {
    for (const TensorSpec& tensor : layout->tensors) {
      if (tensor.is_adapter()) continue;
      const TensorSource source = find_source(files, tensor);
      if (!source.scales) continue;
      if (!std::exchange(announced, true)) log_unannounced(files, source);
      if (source.packing == WeightPacking::fp8) ++(layout->packed() ? packed : unpacked);
    }
  }
  const auto matrices = [](int64_t count) { return fmt::format("{} {}", count, count == 1 ? "matrix" : "matrices"); };
  const char* fp8 = packing_name(WeightPacking::fp8);
  if (unpacked > 0)
    log_info(fmt::format("{} of {} are in {} and are read as {}", matrices(unpacked), files.path(), fp8,
                         dtype_name(layouts.front()->dtype())));
  if (packed > 0) log_info(fmt::format("{} of {} stay in {}", matrices(packed), files.path(), fp8));
}

// A piece of a matrix in fp8. A packed record gets it as the files have it.
void load_fp8(const ModelFiles& files, const TensorSource& source, const TensorPiece& piece, float* scratch) {
  const TensorSpec& tensor = *piece.tensor;
  const DType dtype = piece.record->dtype();
  const std::byte* codes = source.values->data + piece.begin;
  const std::vector<float> scales = read_fp8_scales(source);
  check_fp8(files, source, tensor, dtype, scales, codes, piece.begin, piece.count);
  if (!piece.record->packed()) {
    decode_fp8(dtype, codes, scales.data(), tensor.cols, piece.begin, piece.count, scratch);
    return piece.record->write_master(tensor, piece.begin, piece.count, scratch);
  }
  using Packed = LayerRecord::Packed;
  piece.record->write_packed(Packed::codes, tensor, piece.begin, piece.count, codes);
  if (piece.begin == 0) piece.record->write_packed(Packed::scales, tensor, 0, 4 * std::ssize(scales), scales.data());
}

// Reports how many tensors are missing and names the first few. find_source() has a better message for a single one and
// for experts.
void refuse_missing(const ModelFiles& files, const std::vector<const LayerLayout*>& layouts) {
  constexpr int64_t kNamed = 3;
  int64_t missing = 0;
  std::string names;
  for (const LayerLayout* layout : layouts) {
    for (const TensorSpec& tensor : layout->tensors) {
      const std::string& name = tensor.name;
      if (tensor.is_adapter() || !tensor.stored.name.empty() || !experts_prefix(name).empty() ||
          files.find(name) != nullptr)
        continue;
      if (++missing <= kNamed) names += (names.empty() ? "" : ", ") + name;
    }
  }
  if (missing < 2) return;
  fail_input(
      fmt::format("{} has no tensor {}{}, which its config.json asks for; check that config.json and weights belong "
                  "together.",
                  files.path(), names, missing > kNamed ? fmt::format(" and {} more", missing - kNamed) : ""));
}

}  // namespace

void fail_not_finite(const std::string& where, const std::string& tensor, int64_t element, float value) {
  const std::string what = fmt::format("{}: element {} of tensor {} is {}", where, element, tensor, number_text(value));
  if (std::isfinite(value)) fail_input(what + ", which is infinite in bf16; use --precision=fp32.");
  fail_input(what + "; the file is damaged, or comes from a training that diverged: get another.");
}

void check_fp8(const ModelFiles& files, const TensorSource& source, const TensorSpec& tensor, DType dtype,
               std::span<const float> scales, const std::byte* codes, int64_t begin, int64_t count) {
  for (size_t i = 0; begin == 0 && i < scales.size(); ++i) {
    if (!std::isfinite(scales[i]))
      fail_not_finite(files.file_of(*source.scales), source.scales->name, static_cast<int64_t>(i), scales[i]);
  }
  const int64_t at = first_not_finite_fp8(dtype, codes, scales.data(), tensor.cols, begin, count);
  if (at < 0) return;
  float value = 0;
  decode_fp8(codes + at, scales.data(), tensor.cols, begin + at, 1, &value);
  fail_not_finite(files.file_of(*source.values), tensor.name, begin + at, value);
}

void check_weights(const std::string& directory, const ModelConfig& config) {
  const ModelFiles files = open_model_files(directory);
  const std::vector<LayerLayout> layouts = model_layouts(config);
  std::vector<const LayerLayout*> pointers;
  for (const LayerLayout& layout : layouts) pointers.push_back(&layout);
  match_weights(files, pointers);
}

LoadReport match_weights(const ModelFiles& files, const std::vector<const LayerLayout*>& layouts) {
  refuse_missing(files, layouts);
  LoadReport report;
  std::set<std::string> used;
  for (const LayerLayout* layout : layouts) {
    for (const TensorSpec& tensor : layout->tensors) {
      if (tensor.is_adapter()) continue;
      const TensorSource source = find_source(files, tensor);
      report.types[tensor.name] = source.type();
      for (const std::string& name : source.names()) used.insert(name);
    }
  }
  for (const StoredTensor* stored : files.tensors()) {
    if (!used.count(stored->name)) report.unused.push_back(stored->name);
  }
  refuse_uncounted(files, report.unused, used);
  const TensorSpec& embedding = layouts.front()->tensors.front();
  if (!used.count(kHeadName) && files.find(kHeadName) != nullptr) files.parameter(kHeadName, tensor_shape(embedding));
  return report;
}

LoadReport load_weights(const std::string& directory, std::vector<LayerRecord>& records, int threads) {
  const ModelFiles files = open_model_files(directory);
  std::vector<const LayerLayout*> layouts;
  for (const LayerRecord& record : records) layouts.push_back(&record.layout());
  // All tensors are matched before the first byte is read, so that a wrong file is refused at once.
  LoadReport report = match_weights(files, layouts);
  log_packed(files, layouts);
  check_unused(files, report.unused, layouts.front()->tensors.front(), threads);
  for_pieces(records, threads, "loading the weights", [&](const TensorPiece& piece, float* scratch) {
    if (piece.tensor->is_adapter() || piece.record->weights_in_files()) return;
    const TensorSource source = find_source(files, *piece.tensor);
    if (source.packing == WeightPacking::fp8) {
      load_fp8(files, source, piece, scratch);
    } else {
      read_source(source, *piece.tensor, piece.record->dtype(), piece.begin, piece.count, scratch);
      check_finite(directory, piece, scratch);
      piece.record->write_master(*piece.tensor, piece.begin, piece.count, scratch);
    }
    release_source(source, *piece.tensor, piece.begin, piece.count);
  });
  files.check_whole();
  return report;
}

}  // namespace megatrain
