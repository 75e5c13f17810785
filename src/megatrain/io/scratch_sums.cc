#include "megatrain/io/scratch_sums.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "megatrain/base/error.h"
#include "megatrain/io/xxh3.h"

namespace megatrain {

ScratchSums::ScratchSums(const std::vector<int64_t>& range_bytes) {
  const std::vector<std::byte> zeros(static_cast<size_t>(kScratchPiece));
  std::map<int64_t, uint64_t> sum_of_zeros;  // by length
  for (const int64_t bytes : range_bytes) {
    if (bytes == 0) continue;
    ranges_.push_back({bytes_, static_cast<int64_t>(sums_.size())});
    for (int64_t at = 0; at < bytes; at += kScratchPiece) {
      const int64_t count = std::min(kScratchPiece, bytes - at);
      const auto [known, added] = sum_of_zeros.try_emplace(count);
      if (added) known->second = xxh3_64(zeros.data(), static_cast<size_t>(count));
      sums_.push_back(known->second);
    }
    bytes_ += bytes;
  }
}

ScratchPiece ScratchSums::piece_at(int64_t offset) const {
  ensure(offset >= 0 && offset < bytes_, "an offset lies in the scratch file");
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), offset,
                                      [](int64_t at, const Range& range) { return at < range.offset; });
  const Range& range = *(after - 1);
  const int64_t end = after == ranges_.end() ? bytes_ : after->offset;
  const int64_t which = (offset - range.offset) / kScratchPiece, start = range.offset + which * kScratchPiece;
  return {.index = range.first_piece + which, .offset = start, .bytes = std::min(kScratchPiece, end - start)};
}

void ScratchSums::set(const ScratchPiece& piece, const void* data) {
  sums_[static_cast<size_t>(piece.index)] = xxh3_64(data, static_cast<size_t>(piece.bytes));
}

bool ScratchSums::match(const ScratchPiece& piece, const void* data) const {
  return sums_[static_cast<size_t>(piece.index)] == xxh3_64(data, static_cast<size_t>(piece.bytes));
}

}  // namespace megatrain
