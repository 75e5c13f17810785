// Sequence packing: assigns samples to sequences by best fit, so that there is little padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace megatrain {

// Tokens [begin, begin + length) of a sample. A piece attends only to itself, and its positions start at 0.
struct SamplePiece {
  int64_t sample = 0;
  int32_t begin = 0;
  int32_t length = 0;
  bool operator==(const SamplePiece&) const = default;
};

struct Packing {
  std::vector<SamplePiece> pieces;  // ordered by sequence
  std::vector<int64_t> first;       // (sequences + 1) index of each one's first piece, then pieces.size()

  int64_t sequences() const { return static_cast<int64_t>(first.size()) - 1; }
  std::span<const SamplePiece> sequence(int64_t index) const {
    return std::span(pieces).subspan(first[index], first[index + 1] - first[index]);
  }
};

enum class PackingOrder {
  longest_first,  // best fit decreasing: the least padding; sequences are in the order of opening
  as_given,       // best fit in the given order
  one_each,       // one sequence per piece
};

// Every piece has 1 to `capacity` tokens and goes, whole, into the fullest sequence that still fits it. The given order
// breaks ties, so the result is a function of the arguments.
Packing pack(std::span<const SamplePiece> pieces, int64_t capacity, PackingOrder order);

// A permutation of 0 .. count - 1, a function of (seed, purpose, epoch) alone.
std::vector<int64_t> shuffled(int64_t count, uint64_t seed, uint64_t purpose, int64_t epoch);

}  // namespace megatrain
