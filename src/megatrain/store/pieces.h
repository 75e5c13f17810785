// The tensors of records cut into pieces that a team works on, so that nothing is ever held twice.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "megatrain/host/thread_team.h"
#include "megatrain/store/record.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

inline constexpr int64_t kPiece = int64_t{1} << 20;  // elements; even: random pairs never straddle two pieces

struct Piece {
  LayerRecord* record;
  const TensorSpec* tensor;
  int64_t begin;  // element of the tensor
  int64_t count;
};

inline std::vector<Piece> cut_into_pieces(std::vector<LayerRecord>& records) {
  std::vector<Piece> pieces;
  for (LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      for (int64_t at = 0; at < tensor.elements(); at += kPiece) {
        pieces.push_back({&record, &tensor, at, std::min(kPiece, tensor.elements() - at)});
      }
    }
  }
  return pieces;
}

// Calls work(piece, scratch) for every piece on a team, scratch being a float for each element; the first exception
// stops the rest and is thrown here. `threads` 0: all usable CPUs.
template <class Work>
void for_pieces(std::vector<LayerRecord>& records, int threads, const Work& work) {
  ThreadTeam team(threads > 0 ? threads : static_cast<int>(usable_cpus().size()));
  const std::vector<Piece> pieces = cut_into_pieces(records);
  std::mutex mutex;
  std::exception_ptr error;
  std::atomic<bool> failed{false};
  team.parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    if (failed) return;
    try {
      std::vector<float> scratch(static_cast<size_t>(pieces[static_cast<size_t>(i)].count));
      work(pieces[static_cast<size_t>(i)], scratch.data());
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      failed = true;
    }
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace megatrain
