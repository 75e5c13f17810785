#include "megatrain/optim/updater.h"

#include <algorithm>
#include <cmath>

#include "megatrain/optim/update_run.h"

namespace megatrain {

namespace {

constexpr int64_t kPieceElements = 65536;

}  // namespace

Updater::Updater(const std::vector<LayerRecord>& records, const std::vector<int64_t>& tables, int threads)
    : team_(threads, usable_cpus()) {
  for (const int64_t table : tables) lazy_rows_.try_emplace(table, records[static_cast<size_t>(table)].layout(), team_);
  for (const LayerRecord& record : records) {
    layouts_.push_back(record.layout());
    std::vector<Piece> pieces;
    for (size_t t = 0; t < record.layout().tensors.size(); ++t) {
      const TensorSpec& tensor = record.layout().tensors[t];
      if (!tensor.trainable) continue;
      // whole rows, if the blocks of moments restart with each row
      const int64_t row = tensor.block_row();
      const int64_t most = row < tensor.elements() ? std::max<int64_t>(kPieceElements / row, 1) * row : kPieceElements;
      for (int64_t at = 0; at < tensor.elements(); at += most)
        pieces.push_back({t, at, std::min(most, tensor.elements() - at)});
    }
    pieces_.push_back(std::move(pieces));
  }
}

void Updater::read_rows(int64_t table, const StatePlanes& planes, const std::vector<int32_t>& rows, std::byte* out) {
  if (!lazy_rows_.at(table).read(planes, rows, out)) note_not_finite(table, step_);
}

void Updater::settle(int64_t table, const StatePlanes& planes) {
  if (!lazy_rows_.at(table).catch_up(planes)) note_not_finite(table, step_);
}

std::optional<NotFinite> Updater::not_finite() const {
  std::lock_guard lock(not_finite_lock_);
  return not_finite_;
}

void Updater::note_not_finite(int64_t record, int64_t step) {
  std::lock_guard lock(not_finite_lock_);
  if (!not_finite_) not_finite_ = {record, step};
}

void Updater::update(int64_t index, const StatePlanes& planes, const AdamWStep& step, const HostGradient& gradient,
                     std::span<const double> squares) {
  if (observer_) observer_(index, gradient);
  if (!std::ranges::all_of(squares, [](double square) { return std::isfinite(square); })) torn_ = true;
  if (torn_ || !std::isfinite(step.clip_factor)) return;
  step_ = step.t;
  const LayerLayout& layout = layouts_[static_cast<size_t>(index)];
  const AdamWScalars decayed = adamw_scalars(step);
  AdamWScalars plain = decayed;
  plain.decay = 1.0f;
  if (gradient.rows) {
    if (!lazy_rows_.at(index).update(planes, decayed, *gradient.rows, gradient.data)) note_not_finite(index, step.t);
    return;
  }
  const std::vector<Piece>& pieces = pieces_[static_cast<size_t>(index)];
  // Split into several loops, so that the next step's rows, which need the same team, soon get their turn.
  constexpr int64_t kPiecesALoop = 1024;
  const int64_t all = static_cast<int64_t>(pieces.size());
  for (int64_t first = 0; first < all; first += kPiecesALoop) {
    team_.parallel_for(std::min(kPiecesALoop, all - first), [&](int64_t i) {
      const Piece& piece = pieces[static_cast<size_t>(first + i)];
      const TensorSpec& tensor = layout.tensors[piece.tensor];
      const std::byte* grad =
          gradient.data + (tensor.state_offset + piece.begin) * dtype_bytes(layout.gradient_dtype());
      if (!update_run(planes, tensor, tensor.decays() ? decayed : plain, grad, piece.begin, piece.count))
        note_not_finite(index, step.t);
    });
  }
}

}  // namespace megatrain
