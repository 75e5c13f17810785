// How the delta rule's chunks are divided into segments, and what memory that takes.
#include "megatrain/ops/delta_segments.h"

#include <gtest/gtest.h>

#include "megatrain/base/units.h"

namespace megatrain {
namespace {

const DeltaRuleShape kQwen9B{.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128};
const DeltaRuleShape kQwen27B{.key_heads = 16, .value_heads = 48, .key_dim = 128, .value_dim = 128};

std::vector<ChunkSegment> segments_of(DeltaRuleShape shape, const std::vector<int32_t>& sizes) {
  std::vector<int32_t> begin{0};
  for (int32_t size : sizes) begin.push_back(begin.back() + size);
  shape.tokens = begin.back();
  return delta_segments(shape, {.begin = nullptr,
                                .host_begin = begin.data(),
                                .count = static_cast<int64_t>(sizes.size()),
                                .longest = 0,
                                .uniform = false});
}

// Chunks tile the documents in order, and only documents longer than a segment are cut.
void check(DeltaRuleShape shape, const std::vector<int32_t>& sizes) {
  const std::vector<ChunkSegment> segments = segments_of(shape, sizes);
  for (int32_t size : sizes) shape.tokens += size;
  const int64_t most = delta_segment_chunks(shape);
  int64_t row = 0, slots = 0, open = -1;
  size_t document = 0;
  int32_t left = sizes[0];
  for (const ChunkSegment& segment : segments) {
    EXPECT_EQ(segment.slot_before, open);
    EXPECT_LE(std::ssize(segment.chunks), most);
    for (const ChunkPlace& chunk : segment.chunks) {
      while (left == 0) left = sizes[++document];
      EXPECT_EQ(chunk.row, row);
      EXPECT_EQ(chunk.first, left == sizes[document]);
      EXPECT_EQ(chunk.tokens, std::min<int64_t>(left, kDeltaChunk));
      EXPECT_EQ(chunk.last, left == chunk.tokens);
      row += chunk.tokens;
      left -= chunk.tokens;
    }
    open = segment.slot_after;
    EXPECT_EQ(open >= 0, left > 0);
    if (open < 0) continue;
    EXPECT_EQ(open, slots++);
    EXPECT_GT(sizes[document], most * kDeltaChunk) << "a document that fits into a segment is not cut";
  }
  EXPECT_EQ(row, shape.tokens);
  EXPECT_LE(slots, delta_slots(shape));
}

TEST(DeltaSegments, TileDocumentsAndCutOnlyLongOnes) {
  check(kQwen9B, {1});
  check(kQwen9B, {64, 65, 1, 2, 3, 128});
  check(kQwen9B, std::vector<int32_t>(300, 1));
  check(kQwen9B, std::vector<int32_t>(16, 1024));
  check(kQwen9B, {0, 5, 0, 0, 70, 0});
  check(kQwen9B, {100, 4096, 4097, 4095, 40000, 1});
  check(kQwen27B, {262144});
  check(kQwen27B, {3000, 3000, 9000, 64, 6400, 10, 3200, 3200});
}

TEST(DeltaSegments, ScratchHasABoundForDocumentsOfAnyLength) {
  for (DeltaRuleShape shape : {kQwen9B, kQwen27B}) {
    shape.tokens = 16384;
    EXPECT_LT(delta_rule_scratch_bytes(shape), 700 * kMiB);
    shape.tokens = 1 << 20;
    EXPECT_LT(delta_rule_scratch_bytes(shape), 1700 * kMiB);
  }
  EXPECT_EQ(delta_rule_scratch_bytes({}), 0);
}

}  // namespace
}  // namespace megatrain
