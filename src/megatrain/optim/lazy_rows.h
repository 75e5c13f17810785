// A table of which a step touches few rows, such as the embedding. A row without a gradient still changes: its moments
// decay, and its weight follows. But nothing reads the row until it is needed. So these updates are deferred, and then
// applied one by one with the scalars of their steps. The result is bit-identical to immediate updates, with a fraction
// of the memory traffic.
//
// Every step also applies the deferred updates of a slice of the table, so that no row is ever more than kRowSlices
// updates behind.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "megatrain/host/thread_team.h"
#include "megatrain/ops/adamw.h"
#include "megatrain/plan/workload.h"
#include "megatrain/store/record.h"

namespace megatrain {

class LazyRows {
 public:
  // For a record that is a single table, with all rows up to date. Calls must not overlap. Each call works on the
  // table's planes in host memory.
  LazyRows(const LayerLayout& layout, ThreadTeam& team);

  // Applies one step. `rows` are ascending, `gradient` is (rows, cols) in the weights' dtype. Returns false when a
  // weight or moment is not finite.
  bool update(const StatePlanes& planes, const AdamWScalars& scalars, const std::vector<int32_t>& rows,
              const std::byte* gradient);

  // Brings `rows` up to date and copies their weights to `out`, one after the other.
  bool read(const StatePlanes& planes, const std::vector<int32_t>& rows, std::byte* out);

  // Brings the whole table up to date.
  bool catch_up(const StatePlanes& planes);

 private:
  bool catch_up_row(const StatePlanes& planes, int64_t row);
  template <class Body>
  bool for_rows(int64_t count, const Body& body);

  TensorSpec table_;
  ThreadTeam& team_;
  int64_t rows_, cols_;
  int64_t updates_ = 0;                                 // number of steps so far
  std::vector<int64_t> applied_;                        // (rows): how many of those steps each row has
  std::array<AdamWScalars, kRowSlices + 1> scalars_{};  // of the latest steps, indexed by step modulo the size
};

}  // namespace megatrain
