// Cuts the tensors of records into pieces for a team of threads, so that no tensor is ever held twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/base/work_progress.h"
#include "megatrain/host/parallel.h"
#include "megatrain/store/record.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// elements; even, so that pairs of random numbers never straddle pieces
inline constexpr int64_t kPiece = int64_t{1} << 20;
inline constexpr int64_t kPieceScratchBytes = 3 * kPiece * 4;  // at most, per member of the team

struct TensorPiece {
  LayerRecord* record;
  const TensorSpec* tensor;
  int64_t begin;  // first element in the tensor
  int64_t count;
};

inline std::vector<TensorPiece> cut_into_pieces(std::vector<LayerRecord>& records) {
  std::vector<TensorPiece> pieces;
  for (LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      for (int64_t at = 0; at < tensor.elements(); at += kPiece) {
        pieces.push_back({&record, &tensor, at, std::min(kPiece, tensor.elements() - at)});
      }
    }
  }
  return pieces;
}

// Calls work(piece, scratch) for every piece on a team; scratch has one float per element. Reports the progress of
// `what`. The first exception stops the rest and is rethrown here. `threads` 0: all usable CPUs.
template <class Work>
void for_pieces(std::vector<LayerRecord>& records, int threads, const std::string& what, const Work& work) {
  const std::vector<TensorPiece> pieces = cut_into_pieces(records);
  WorkProgress progress(what, std::ssize(pieces));
  parallel_for(threads, std::ssize(pieces), [&](int64_t i) {
    const TensorPiece& piece = pieces[static_cast<size_t>(i)];
    std::vector<float> scratch(static_cast<size_t>(piece.count));
    work(piece, scratch.data());
    progress.add(1);
  });
}

}  // namespace megatrain
