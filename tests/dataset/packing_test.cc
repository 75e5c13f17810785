#include "megatrain/dataset/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "megatrain/base/rng.h"

namespace megatrain {
namespace {

std::vector<SamplePiece> pieces_of(const std::vector<int32_t>& lengths) {
  std::vector<SamplePiece> pieces;
  for (const int32_t length : lengths) pieces.push_back({static_cast<int64_t>(pieces.size()), 0, length});
  return pieces;
}

std::vector<std::vector<int64_t>> samples_of(const Packing& packing) {
  std::vector<std::vector<int64_t>> samples(packing.sequences());
  for (int64_t s = 0; s < packing.sequences(); ++s)
    for (const SamplePiece& piece : packing.sequence(s)) samples[s].push_back(piece.sample);
  return samples;
}

std::vector<int32_t> random_lengths(uint64_t seed, int64_t count, int64_t most) {
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < count; ++i) lengths.push_back(static_cast<int32_t>(1 + random_below(seed, 1, i, most)));
  return lengths;
}

TEST(Packing, APieceGoesIntoTheFullestSequenceThatHasRoomForIt) {
  // space left after 6, 7, 4 in sequences of 10: 4, 3, 6
  const Packing packing = pack(pieces_of({6, 7, 4, 3, 4, 2}), 10, PackingOrder::as_given);
  EXPECT_EQ(samples_of(packing), (std::vector<std::vector<int64_t>>{{0, 2}, {1, 3}, {4, 5}}));
}

TEST(Packing, LongestFirstFillsWhatTheGivenOrderLeavesOpen) {
  const std::vector<SamplePiece> pieces = pieces_of({4, 4, 4, 6, 6, 6});
  EXPECT_EQ(pack(pieces, 10, PackingOrder::as_given).sequences(), 4);
  EXPECT_EQ(samples_of(pack(pieces, 10, PackingOrder::longest_first)),
            (std::vector<std::vector<int64_t>>{{3, 2}, {4, 1}, {5, 0}}));
}

TEST(Packing, EveryPieceStandsInOneSequenceAndNoneIsOverfull) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const int64_t capacity = 2 + static_cast<int64_t>(random_below(seed, 2, 0, 400));
    const std::vector<SamplePiece> pieces = pieces_of(random_lengths(seed, 500, capacity));
    for (const PackingOrder order : {PackingOrder::longest_first, PackingOrder::as_given, PackingOrder::one_each}) {
      const Packing packing = pack(pieces, capacity, order);
      std::multiset<int64_t> seen;
      for (int64_t s = 0; s < packing.sequences(); ++s) {
        int64_t tokens = 0;
        for (const SamplePiece& piece : packing.sequence(s)) {
          tokens += piece.length;
          seen.insert(piece.sample);
          EXPECT_EQ(piece, pieces[piece.sample]);
        }
        EXPECT_LE(tokens, capacity);
        EXPECT_GT(tokens, 0);
      }
      EXPECT_EQ(seen.size(), pieces.size());
      EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), pieces.size());
      if (order == PackingOrder::one_each) {
        EXPECT_EQ(packing.sequences(), std::ssize(pieces));
      }
    }
  }
}

// No two sequences could be merged into one, which best fit guarantees.
TEST(Packing, RoomThatNothingFillsCostsNothing) {
  const auto pieces = pieces_of({6, 7, 4, 3, 4, 2});
  for (const PackingOrder order : {PackingOrder::as_given, PackingOrder::longest_first}) {
    const Packing wide = pack(pieces, int64_t{1} << 60, order);
    EXPECT_EQ(wide.sequences(), 1);
    EXPECT_EQ(samples_of(wide), samples_of(pack(pieces, 26, order)));
  }
}

TEST(Packing, NoTwoSequencesFitIntoOne) {
  const Packing packing = pack(pieces_of(random_lengths(7, 2000, 300)), 512, PackingOrder::longest_first);
  std::vector<int64_t> filled;
  for (int64_t s = 0; s < packing.sequences(); ++s) {
    filled.push_back(0);
    for (const SamplePiece& piece : packing.sequence(s)) filled.back() += piece.length;
  }
  std::sort(filled.begin(), filled.end());
  EXPECT_GT(filled[0] + filled[1], 512);
}

TEST(Packing, ConversationsOfManyLengthsFillNinetyEightPercent) {
  const std::vector<int32_t> lengths = random_lengths(3, 20'000, 900);
  int64_t tokens = 0;
  for (const int32_t length : lengths) tokens += length;
  const Packing packing = pack(pieces_of(lengths), 2048, PackingOrder::longest_first);
  EXPECT_GT(static_cast<double>(tokens) / static_cast<double>(packing.sequences() * 2048), 0.98);
}

TEST(Packing, TheNumberOfSequencesIsThatOfTheLengthsInAnyOrder) {
  std::vector<SamplePiece> pieces = pieces_of(random_lengths(5, 3000, 200));
  const int64_t expected = pack(pieces, 256, PackingOrder::longest_first).sequences();
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<SamplePiece> mixed;
    for (const int64_t i : shuffled(std::ssize(pieces), 9, 1, epoch)) mixed.push_back(pieces[i]);
    EXPECT_EQ(pack(mixed, 256, PackingOrder::longest_first).sequences(), expected);
  }
}

TEST(Shuffled, IsAPermutationThatSeedPurposeAndEpochDecide) {
  const std::vector<int64_t> order = shuffled(1000, 1, 2, 3);
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(sorted[i], i);
  EXPECT_EQ(shuffled(1000, 1, 2, 3), order);
  EXPECT_NE(shuffled(1000, 2, 2, 3), order);
  EXPECT_NE(shuffled(1000, 1, 3, 3), order);
  EXPECT_NE(shuffled(1000, 1, 2, 4), order);
  EXPECT_TRUE(shuffled(0, 1, 2, 3).empty());
}

TEST(Shuffled, EveryPlaceIsAboutEquallyLikely) {
  std::map<int64_t, int64_t> first;
  for (int64_t epoch = 0; epoch < 6000; ++epoch) ++first[shuffled(6, 11, 1, epoch)[0]];
  for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(static_cast<double>(first[i]), 1000, 150);
}

}  // namespace
}  // namespace megatrain
