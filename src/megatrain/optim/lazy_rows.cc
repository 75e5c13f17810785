#include "megatrain/optim/lazy_rows.h"

#include <algorithm>
#include <cstring>

#include "megatrain/base/math.h"
#include "megatrain/optim/update_run.h"

namespace megatrain {

LazyRows::LazyRows(const LayerLayout& layout, ThreadTeam& team)
    : table_(layout.tensors.front()),
      team_(team),
      rows_(table_.rows),
      cols_(table_.cols),
      applied_(static_cast<size_t>(rows_), 0) {}

// Calls body(i) for every i below `count` on the team, a few per piece. Returns whether all results were finite.
template <class Body>
bool LazyRows::for_rows(int64_t count, const Body& body) {
  constexpr int64_t kRowsAPiece = 16;
  std::atomic<bool> finite{true};
  team_.parallel_for(ceil_div(count, kRowsAPiece), [&](int64_t piece) {
    bool all = true;
    for (int64_t i = piece * kRowsAPiece; i < std::min(count, (piece + 1) * kRowsAPiece); ++i) all = body(i) && all;
    if (!all) finite = false;
  });
  return finite;
}

bool LazyRows::catch_up_row(const StatePlanes& planes, int64_t row) {
  int64_t& applied = applied_[static_cast<size_t>(row)];
  bool finite = true;
  while (applied < updates_) {
    ++applied;
    const AdamWScalars& scalars = scalars_[static_cast<size_t>(applied) % scalars_.size()];
    finite &= update_run(planes, table_, scalars, nullptr, row * cols_, cols_);
  }
  return finite;
}

bool LazyRows::update(const StatePlanes& planes, const AdamWScalars& scalars, const std::vector<int32_t>& rows,
                      const std::byte* gradient) {
  const int64_t row_bytes = cols_ * dtype_bytes(table_.dtype);
  bool finite = for_rows(static_cast<int64_t>(rows.size()), [&](int64_t i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    const bool before = catch_up_row(planes, row);
    applied_[static_cast<size_t>(row)] = updates_ + 1;
    return update_run(planes, table_, scalars, gradient + i * row_bytes, row * cols_, cols_) && before;
  });
  ++updates_;
  scalars_[static_cast<size_t>(updates_) % scalars_.size()] = scalars;
  const int64_t slice = updates_ % kRowSlices, begin = rows_ * slice / kRowSlices,
                end = rows_ * (slice + 1) / kRowSlices;
  finite = for_rows(end - begin, [&](int64_t i) { return catch_up_row(planes, begin + i); }) && finite;
  return finite;
}

bool LazyRows::read(const StatePlanes& planes, const std::vector<int32_t>& rows, std::byte* out) {
  const size_t row_bytes = static_cast<size_t>(cols_ * dtype_bytes(table_.dtype));
  const std::byte* weights = planes.weight ? reinterpret_cast<const std::byte*>(planes.weight)
                                           : reinterpret_cast<const std::byte*>(planes.master);
  return for_rows(static_cast<int64_t>(rows.size()), [&](int64_t i) {
    const size_t row = static_cast<size_t>(rows[static_cast<size_t>(i)]);
    const bool finite = catch_up_row(planes, static_cast<int64_t>(row));
    std::memcpy(out + static_cast<size_t>(i) * row_bytes, weights + row * row_bytes, row_bytes);
    return finite;
  });
}

bool LazyRows::catch_up(const StatePlanes& planes) {
  return for_rows(rows_, [&](int64_t row) { return catch_up_row(planes, row); });
}

}  // namespace megatrain
