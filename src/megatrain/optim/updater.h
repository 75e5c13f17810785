// Turns a record's gradient into its next state: one fused pass over the planes by a team of threads. The schedule
// decides when each record is updated; the norm decides here whether it is.
//
// With clipping, a step whose norm is not finite changes nothing. Without clipping, the check is per record: the first
// record with a non-finite gradient and all after it stay unchanged. The state is then torn, and the run must stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "megatrain/host/thread_team.h"
#include "megatrain/ops/adamw.h"
#include "megatrain/optim/lazy_rows.h"
#include "megatrain/optim/scalars.h"
#include "megatrain/store/record.h"

namespace megatrain {

// A gradient as it arrived on the host, in its layout's gradient_dtype().
struct HostGradient {
  const std::byte* data = nullptr;             // the layout's state elements, or only those of `rows`
  const std::vector<int32_t>* rows = nullptr;  // sorted distinct rows of a one-tensor record; other rows are zero
};

// Identifies an update that made a weight or moment infinite or NaN.
struct NotFinite {
  int64_t record = 0;
  int64_t step = 0;
};

class Updater {
 public:
  // For records with these layouts; `tables` are the numbers of the lookup tables among them. Each call says where the
  // planes are: they may be a staged copy.
  Updater(const std::vector<LayerRecord>& records, const std::vector<int64_t>& tables, int threads);

  // Called with the record's index before each record is updated, for dumps.
  using Observer = std::function<void(int64_t record, const HostGradient&)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

  // `squares` are the gradient's sums of squares if the check is per record (no clipping); empty with clipping.
  void update(int64_t record, const StatePlanes& planes, const AdamWStep& step, const HostGradient& gradient,
              std::span<const double> squares);

  // Reads the weights of rows of a table in host memory. Must not run concurrently with an update of it.
  void read_rows(int64_t table, const StatePlanes& planes, const std::vector<int32_t>& rows, std::byte* out);

  // Applies all deferred row updates of a table, so that every row is current.
  void settle(int64_t table, const StatePlanes& planes);

  bool torn() const { return torn_; }           // a non-finite gradient stopped the updates in the middle of a step
  std::optional<NotFinite> not_finite() const;  // the first one, if any

 private:
  // A range of elements of one trained tensor: small enough to balance, large enough to stream.
  struct Piece {
    size_t tensor;
    int64_t begin;  // first element in the tensor
    int64_t count;
  };

  void note_not_finite(int64_t record, int64_t step);

  std::vector<LayerLayout> layouts_;
  std::vector<std::vector<Piece>> pieces_;
  ThreadTeam team_;
  std::map<int64_t, LazyRows> lazy_rows_;  // by table
  Observer observer_;
  std::atomic<bool> torn_{false};
  std::atomic<int64_t> step_{0};  // of the last update
  mutable std::mutex not_finite_lock_;
  std::optional<NotFinite> not_finite_;
};

}  // namespace megatrain
