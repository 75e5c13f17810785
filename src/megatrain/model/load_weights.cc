#include "megatrain/model/load_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/finite.h"
#include "megatrain/base/math.h"
#include "megatrain/base/number_text.h"
#include "megatrain/host/parallel.h"
#include "megatrain/hub/convert.h"
#include "megatrain/store/pieces.h"

namespace megatrain {

namespace {

constexpr const char* kHead = "lm_head.weight";

// A tied model reads its head from the embedding. Files may hold the head all the same, if it is the same.
void check_tied_head(const ModelFiles& files, const TensorSpec& embedding, int threads) {
  const StoredTensor& head = files.parameter(kHead, tensor_shape(embedding));
  const StoredTensor& table = files.parameter(embedding.name, tensor_shape(embedding));
  constexpr int64_t kElements = int64_t{1} << 18;
  parallel_for(threads, ceil_div(embedding.elements(), kElements), [&](int64_t block) {
    const int64_t begin = block * kElements, count = std::min(kElements, embedding.elements() - begin);
    std::vector<float> a(static_cast<size_t>(count)), b(a);
    read_as_f32(head, begin, count, a.data());
    read_as_f32(table, begin, count, b.data());
    const auto same = [](float x, float y) {
      return x == y || std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
    };
    const auto differs = std::mismatch(a.begin(), a.end(), b.begin(), same).first;
    if (differs == a.end()) return;
    const int64_t row = (begin + (differs - a.begin())) / embedding.cols;
    fail_input(fmt::format(
        "{}: {} differs from {} (row {}), but config.json says tie_word_embeddings: true; transformers drops it or "
        "does "
        "not tie, by version: set tie_word_embeddings to false to train both, or remove {} from the weights",
        files.file_of(head), kHead, embedding.name, row, kHead));
  });
  release_pages(head);
}

// Experts of a layer that are more than the model has would else be left out without a word.
void check_expert_counts(const ModelFiles& files, const std::vector<std::string>& unused,
                         const std::set<std::string>& prefixes) {
  for (const std::string& name : unused) {
    const std::string prefix = experts_prefix(name);
    if (!prefix.empty() && prefixes.contains(prefix))
      fail_input(fmt::format(
          "{}: tensor {} is of an expert that config.json does not count; check that config.json and weights "
          "belong together.",
          files.file_of(*files.find(name)), name));
  }
}

// Nothing can be trained from, or computed with, a weight that is infinite or NaN.
void check_finite(const std::string& directory, const TensorPiece& piece, const float* values) {
  const bool bf16 = piece.record->dtype() == DType::bf16;
  const int64_t at = first_not_finite(values, piece.count, bf16 ? kMasterFiniteBelow : kFiniteBelow);
  if (at < 0) return;
  const std::string what = fmt::format("{}: element {} of tensor {} is {}", directory, piece.begin + at,
                                       piece.tensor->name, number_text(values[at]));
  if (std::isfinite(values[at])) fail_input(what + ", which is infinite in bf16; use --precision=fp32.");
  fail_input(what + "; the file is damaged, or comes from a training that diverged: get another.");
}

}  // namespace

LoadReport match_weights(const ModelFiles& files, const std::vector<const LayerLayout*>& layouts) {
  LoadReport report;
  std::set<std::string> used, experts;
  for (const LayerLayout* layout : layouts) {
    for (const TensorSpec& tensor : layout->tensors) {
      const TensorSource source = find_source(files, tensor);
      report.types[tensor.name] = source.type();
      for (const std::string& name : source.names()) used.insert(name);
      experts.insert(experts_prefix(tensor.name));
    }
  }
  for (const StoredTensor* stored : files.tensors()) {
    if (!used.count(stored->name)) report.unused.push_back(stored->name);
  }
  check_expert_counts(files, report.unused, experts);
  const TensorSpec& embedding = layouts.front()->tensors.front();
  if (!used.count(kHead) && files.find(kHead) != nullptr) files.parameter(kHead, tensor_shape(embedding));
  return report;
}

LoadReport load_weights(const std::string& directory, std::vector<LayerRecord>& records, int threads) {
  const ModelFiles files(directory);
  std::vector<const LayerLayout*> layouts;
  for (const LayerRecord& record : records) layouts.push_back(&record.layout());
  // every tensor is looked at before the first byte is read, so that a wrong file is refused at once
  LoadReport report = match_weights(files, layouts);
  if (std::find(report.unused.begin(), report.unused.end(), kHead) != report.unused.end())
    check_tied_head(files, layouts.front()->tensors.front(), threads);
  for_pieces(records, threads, "loading the weights", [&](const TensorPiece& piece, float* scratch) {
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
