// What the segments of Mamba 2's recurrence take. delta_segments_test.cc has how chunks are divided.
#include "megatrain/ops/ssd_segments.h"

#include <gtest/gtest.h>

#include "megatrain/base/units.h"

namespace megatrain {
namespace {

const SsdShape kNemotron{.tokens = 65536, .heads = 64, .groups = 8, .head_dim = 64, .state_dim = 128};

TEST(SsdSegments, HaveABoundForTheirScratchAtAnyLength) {
  const int64_t bytes = ssd_scratch_bytes(kNemotron);
  EXPECT_LT(bytes, kGiB);
  SsdShape longer = kNemotron;
  longer.tokens *= 4;
  const int64_t of_states = 3 * kNemotron.tokens / (64 * 64) * 64 * 128 * 64 * 4;
  EXPECT_EQ(ssd_scratch_bytes(longer), bytes + of_states);
  EXPECT_EQ(ssd_scratch_bytes({}), 0);
}

TEST(SsdSegments, CutOnlyDocumentsThatAreLongerThanASegment) {
  const std::vector<int32_t> begin = {0, 64 * 64, 64 * 64 + 1, 65536};
  const std::vector<ChunkSegment> segments = ssd_segments(
      kNemotron,
      {.begin = nullptr, .host_begin = begin.data(), .count = 3, .longest = 65536 - 64 * 64 - 1, .uniform = false});
  ASSERT_GT(segments.size(), 2U);
  EXPECT_EQ(segments[0].slot_after, -1);
  EXPECT_EQ(std::ssize(segments[0].chunks), 64);
  for (size_t i = 2; i < segments.size(); ++i) EXPECT_EQ(segments[i].slot_before, segments[i - 1].slot_after) << i;
}

}  // namespace
}  // namespace megatrain
