// A table of which a step touches few rows, such as the embedding. A row without a gradient still changes (its moments
// decay, its weight follows), but no action reads it until the row is needed: so these updates are deferred, and
// applied one by one, with the scalars of their steps, when it is. The bits are those of updating at once; the memory
// traffic is a fraction.
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
  // Of a record that is one table; all rows are up to date. Calls must not overlap. Each works on the table's planes in
  // host memory.
  LazyRows(const LayerLayout& layout, ThreadTeam& team);

  // One step. `rows` are ascending, `gradient` is (rows, cols) in the weights' dtype. False: a weight or a
  // moment is not finite.
  bool update(const StatePlanes& planes, const AdamWScalars& scalars, const std::vector<int32_t>& rows,
              const std::byte* gradient);

  // The weights of `rows`, up to date, one after the other.
  bool read(const StatePlanes& planes, const std::vector<int32_t>& rows, std::byte* out);

  // The whole table up to date.
  bool catch_up(const StatePlanes& planes);

 private:
  bool catch_up_row(const StatePlanes& planes, int64_t row);
  template <class Body>
  bool for_rows(int64_t count, const Body& body);

  TensorSpec table_;
  ThreadTeam& team_;
  int64_t rows_, cols_;
  int64_t updates_ = 0;                                 // steps so far
  std::vector<int64_t> applied_;                        // (rows) how many of them the row has seen
  std::array<AdamWScalars, kRowSlices + 1> scalars_{};  // of the last steps, by step modulo the size
};

}  // namespace megatrain
