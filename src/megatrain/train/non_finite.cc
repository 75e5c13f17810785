#include "megatrain/train/non_finite.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/finite.h"
#include "megatrain/store/pieces.h"

namespace megatrain {

std::string record_name(const Workload& w, int64_t record) {
  if (record == 0) return "the embedding";
  if (record == w.head_record()) return "the head";
  if (w.record(record).token_rows) return "the rows of trainable_token_indices";
  const int64_t phase = w.phase_of(record);
  if (w.is_looked_up(record)) return fmt::format("the embedding of layer {}", phase - 1);
  const char* part = w.record(record).adapter                   ? " (its adapters)"
                     : w.phase(phase).records.front() == record ? ""
                                                                : " (its experts)";
  return fmt::format("layer {}{}", phase - 1, part);
}

std::string not_finite_in(const LayerRecord& record) {
  const uint32_t weight_limit = record.dtype() == DType::bf16 ? kMasterFiniteBelow : kFiniteBelow;
  for (const TensorSpec& tensor : record.layout().tensors) {
    std::vector<float> values(static_cast<size_t>(std::min(kPiece, tensor.elements())));
    // The first non-finite element of a plane; read(begin, count) copies a piece of it to `values`.
    const auto find = [&](const char* plane, uint32_t limit, const auto& read) -> std::string {
      for (int64_t begin = 0; begin < tensor.elements(); begin += kPiece) {
        const int64_t count = std::min(kPiece, tensor.elements() - begin);
        read(begin, count);
        const int64_t at = first_not_finite(values.data(), count, limit);
        if (at >= 0) return fmt::format("{}{}, at element {}", plane, tensor.name, begin + at);
      }
      return "";
    };
    std::string found = find("", weight_limit, [&](int64_t begin, int64_t count) {
      record.read_master(tensor, begin, count, values.data());
    });
    if (!found.empty()) return found;
    if (!tensor.trainable) continue;
    for (const auto& [plane, moment] : {std::pair{"the first moment of ", LayerRecord::Moment::first},
                                        {"the second moment of ", LayerRecord::Moment::second}}) {
      found = find(plane, kFiniteBelow, [&, moment = moment](int64_t begin, int64_t count) {
        record.read_moment(moment, tensor, begin, count, values.data());
      });
      if (!found.empty()) return found;
    }
  }
  return "";
}

std::string first_bad_gradient(const Workload& w, std::span<const double> squares) {
  for (int64_t record = w.record_count() - 1; record >= 0; --record) {
    const auto parts = static_cast<size_t>(w.record(record).norm_parts);
    const std::span<const double> own = squares.last(parts);
    if (!std::ranges::all_of(own, [](double square) { return std::isfinite(square); })) return record_name(w, record);
    squares = squares.first(squares.size() - parts);
  }
  return "";
}

std::vector<DocumentAt> documents_not_finite(const Batch& batch, const std::vector<float>& losses) {
  std::vector<DocumentAt> found;
  const float* loss = losses.data();
  for (int64_t m = 0; m < std::ssize(batch.micro_batches); ++m) {
    const MicroBatch& micro = batch.micro_batches[static_cast<size_t>(m)];
    for (size_t d = 0; d + 1 < micro.document_begin.size(); ++d) {
      const int64_t begin = micro.document_begin[d], end = micro.document_begin[d + 1];
      if (first_not_finite(loss + begin, end - begin) >= 0) found.push_back({.micro_batch = m, .token = begin});
    }
    loss += micro.tokens.size();
  }
  return found;
}

std::string name_documents(BatchSource& source, int64_t step, const std::vector<DocumentAt>& documents) {
  constexpr size_t kNamed = 5;
  std::vector<std::string> places;
  for (const DocumentAt& document : documents) {
    const std::string place = source.place(step, document.micro_batch, document.token);
    if (!place.empty() && std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  if (places.empty()) return "";
  const size_t named = std::min(places.size(), kNamed);
  return fmt::format(". The loss is not finite in {}{}",
                     fmt::join(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                     places.size() > named ? fmt::format(" and {} more", places.size() - named) : "");
}

}  // namespace megatrain
