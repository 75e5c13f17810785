#include "megatrain/dataset/packing.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"

namespace megatrain {
namespace {

// Open sequences by the tokens they have left. Among equal ones, the most recently used is found first.
class OpenSequences {
 public:
  explicit OpenSequences(int64_t capacity) : by_room_(capacity + 1), words_(capacity / 64 + 1) {}

  // Takes the sequence with the least space left that still fits `length`, or -1. It is closed until it is put back.
  int64_t take(int64_t length, int64_t& room) {
    for (size_t word = static_cast<size_t>(length / 64); word < words_.size(); ++word) {
      uint64_t bits = words_[word];
      if (word == static_cast<size_t>(length / 64)) bits &= ~uint64_t{0} << (length % 64);
      if (bits == 0) continue;
      room = static_cast<int64_t>(word) * 64 + std::countr_zero(bits);
      std::vector<int64_t>& sequences = by_room_[room];
      const int64_t sequence = sequences.back();
      sequences.pop_back();
      if (sequences.empty()) words_[word] &= ~(uint64_t{1} << (room % 64));
      return sequence;
    }
    return -1;
  }

  void put(int64_t sequence, int64_t room) {
    by_room_[room].push_back(sequence);
    words_[static_cast<size_t>(room / 64)] |= uint64_t{1} << (room % 64);
  }

 private:
  std::vector<std::vector<int64_t>> by_room_;
  std::vector<uint64_t> words_;  // bit r: some sequence has r tokens left
};

// Stable: pieces of equal length keep their order.
std::vector<int64_t> longest_first(std::span<const SamplePiece> pieces, int64_t capacity) {
  std::vector<int64_t> next(capacity + 2);
  for (const SamplePiece& piece : pieces) ++next[capacity - piece.length + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<int64_t> order(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) order[next[capacity - pieces[i].length]++] = static_cast<int64_t>(i);
  return order;
}

}  // namespace

Packing pack(std::span<const SamplePiece> pieces, int64_t capacity, PackingOrder order) {
  const int64_t count = static_cast<int64_t>(pieces.size());
  int64_t tokens = 0;
  for (const SamplePiece& piece : pieces) {
    ensure(piece.length >= 1 && piece.length <= capacity, "a piece fits into a sequence");
    tokens += piece.length;
  }
  // A capacity beyond all tokens changes nothing but would take memory.
  capacity = std::min(capacity, tokens);
  std::vector<int64_t> sequence_of(count);
  std::vector<int64_t> visit;
  int64_t sequences = 0;
  if (order == PackingOrder::one_each) {
    std::iota(sequence_of.begin(), sequence_of.end(), 0);
    sequences = count;
    visit = sequence_of;
  } else {
    if (order == PackingOrder::longest_first) {
      visit = longest_first(pieces, capacity);
    } else {
      visit.resize(count);
      std::iota(visit.begin(), visit.end(), 0);
    }
    OpenSequences open(capacity);
    for (const int64_t piece : visit) {
      int64_t room = capacity;
      int64_t sequence = open.take(pieces[piece].length, room);
      if (sequence < 0) sequence = sequences++;
      sequence_of[piece] = sequence;
      if (room > pieces[piece].length) open.put(sequence, room - pieces[piece].length);
    }
  }

  Packing packing;
  packing.first.assign(sequences + 1, 0);
  for (const int64_t sequence : sequence_of) ++packing.first[sequence + 1];
  std::partial_sum(packing.first.begin(), packing.first.end(), packing.first.begin());
  packing.pieces.resize(count);
  std::vector<int64_t> next(packing.first.begin(), packing.first.end() - 1);
  for (const int64_t piece : visit) packing.pieces[next[sequence_of[piece]]++] = pieces[piece];
  return packing;
}

std::vector<int64_t> shuffled(int64_t count, uint64_t seed, uint64_t purpose, int64_t epoch) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  const uint64_t stream = random_bits(seed, purpose, static_cast<uint64_t>(epoch));
  for (int64_t i = count - 1; i > 0; --i)
    std::swap(order[i], order[random_below(stream, purpose, static_cast<uint64_t>(i), static_cast<uint64_t>(i) + 1)]);
  return order;
}

}  // namespace megatrain
