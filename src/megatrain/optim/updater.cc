#include "megatrain/optim/updater.h"

#include <algorithm>
#include <cmath>

namespace megatrain {

namespace {

constexpr int64_t kPieceElements = 65536;

}  // namespace

Updater::Updater(std::vector<LayerRecord>& records, int threads)
    : records_(records), team_(threads, usable_cpus()), simd_(best_simd()) {
  for (const LayerRecord& record : records) {
    std::vector<Piece> pieces;
    for (size_t t = 0; t < record.layout().tensors.size(); ++t) {
      const TensorSpec& tensor = record.layout().tensors[t];
      for (int64_t at = 0; at < tensor.elements(); at += kPieceElements) {
        pieces.push_back({t, tensor.offset + at, std::min(kPieceElements, tensor.elements() - at)});
      }
    }
    pieces_.push_back(std::move(pieces));
  }
}

bool Updater::update_piece(LayerRecord& record, const AdamWScalars& scalars, const std::byte* gradient, int64_t begin,
                           int64_t count) const {
  const StatePlanes at = record.planes();
  AdamW args{.scalars = scalars, .count = count, .m = at.m + begin, .v = at.v + begin};
  if (record.dtype() == DType::bf16) {
    args.grad_bf16 = reinterpret_cast<const bf16*>(gradient);
    args.weight = at.weight + begin;
    args.low = at.low + begin;
  } else {
    args.grad_f32 = reinterpret_cast<const float*>(gradient);
    args.master = at.master + begin;
  }
  return adamw_cpu(args, simd_);
}

void Updater::update_rows(LayerRecord& record, const AdamWScalars& scalars, const HostGradient& gradient) {
  const TensorSpec& table = record.layout().tensors.front();
  const int64_t rows_a_piece = std::max<int64_t>(1, kPieceElements / table.cols);
  const std::vector<int32_t>& touched = *gradient.rows;
  team_.parallel_for((table.rows + rows_a_piece - 1) / rows_a_piece, [&](int64_t piece) {
    const int64_t first = piece * rows_a_piece, last = std::min(table.rows, first + rows_a_piece);
    auto next = std::lower_bound(touched.begin(), touched.end(), static_cast<int32_t>(first));
    bool finite = true;
    for (int64_t row = first; row < last; ++row) {
      const std::byte* grad = nullptr;
      if (next != touched.end() && *next == row) {
        grad = gradient.data + (next - touched.begin()) * table.cols * dtype_bytes(record.dtype());
        ++next;
      }
      finite &= update_piece(record, scalars, grad, table.offset + row * table.cols, table.cols);
    }
    if (!finite) overflowed_ = true;
  });
}

void Updater::update(int64_t index, const AdamWStep& step, const HostGradient& gradient, const double* squares) {
  if (observer_) observer_(index, gradient);
  if (squares && !std::isfinite(*squares)) torn_ = true;
  if (torn_ || !std::isfinite(step.clip_factor)) return;
  LayerRecord& record = records_[static_cast<size_t>(index)];
  const AdamWScalars decayed = adamw_scalars(step);
  AdamWScalars plain = decayed;
  plain.decay = 1.0f;
  if (gradient.rows) return update_rows(record, decayed, gradient);
  const std::vector<Piece>& pieces = pieces_[static_cast<size_t>(index)];
  team_.parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    const bool decay = record.layout().tensors[piece.tensor].decay;
    const std::byte* grad = gradient.data + piece.begin * dtype_bytes(record.dtype());
    if (!update_piece(record, decay ? decayed : plain, grad, piece.begin, piece.count)) overflowed_ = true;
  });
}

}  // namespace megatrain
