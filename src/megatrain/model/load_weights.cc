#include "megatrain/model/load_weights.h"

#include <cmath>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/finite.h"
#include "megatrain/base/log.h"
#include "megatrain/base/number_text.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/model.h"
#include "megatrain/model/unused_tensors.h"
#include "megatrain/store/pieces.h"

namespace megatrain {

namespace {

void check_finite(const std::string& directory, const TensorPiece& piece, const float* values) {
  const bool bf16 = piece.record->dtype() == DType::bf16;
  const int64_t at = first_not_finite(values, piece.count, bf16 ? kMasterFiniteBelow : kFiniteBelow);
  if (at >= 0) fail_not_finite(directory, *piece.tensor, piece.begin + at, values[at]);
}

// MXFP4 is normally announced in config.json, as gpt-oss does. Without that, it is detected by the tensor names.
void log_unannounced_mxfp4(const ModelFiles& files, const std::vector<const LayerLayout*>& layouts) {
  for (const LayerLayout* layout : layouts) {
    for (const TensorSpec& tensor : layout->tensors) {
      if (tensor.is_adapter()) continue;
      const TensorSource source = find_source(files, tensor);
      if (!source.scales) continue;
      const std::string config = files.path() + "/config.json";
      std::error_code none;
      if (std::filesystem::exists(config, none) && !read_json_file(config).contains("quantization_config"))
        log_info(fmt::format("{} has no 'quantization_config', but {} is in MXFP4 by its name and is read as such",
                             config, source.values->name));
      return;
    }
  }
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

void fail_not_finite(const std::string& where, const TensorSpec& tensor, int64_t element, float value) {
  const std::string what =
      fmt::format("{}: element {} of tensor {} is {}", where, element, tensor.name, number_text(value));
  if (std::isfinite(value)) fail_input(what + ", which is infinite in bf16; use --precision=fp32.");
  fail_input(what + "; the file is damaged, or comes from a training that diverged: get another.");
}

void check_weights(const std::string& directory, const ModelConfig& config) {
  const ModelFiles files(directory);
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
  const ModelFiles files(directory);
  std::vector<const LayerLayout*> layouts;
  for (const LayerRecord& record : records) layouts.push_back(&record.layout());
  // All tensors are matched before the first byte is read, so that a wrong file is refused at once.
  LoadReport report = match_weights(files, layouts);
  log_unannounced_mxfp4(files, layouts);
  check_unused(files, report.unused, layouts.front()->tensors.front(), threads);
  for_pieces(records, threads, "loading the weights", [&](const TensorPiece& piece, float* scratch) {
    if (piece.tensor->is_adapter() || piece.record->weights_in_files()) return;
    const TensorSource source = find_source(files, *piece.tensor);
    read_source(source, *piece.tensor, piece.begin, piece.count, scratch);
    check_finite(directory, piece, scratch);
    piece.record->write_master(*piece.tensor, piece.begin, piece.count, scratch);
    if (piece.begin + piece.count == piece.tensor->elements()) release_source(source, *piece.tensor);
  });
  files.check_whole();
  return report;
}

}  // namespace megatrain
