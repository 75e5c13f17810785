#include "megatrain/ops/ssd_segments.h"

#include <algorithm>

#include "megatrain/base/units.h"

namespace megatrain {

namespace {

constexpr int64_t kSsdSegmentBytes = 640 * kMiB;  // of a segment's scratch, unless a segment would be very short
constexpr int64_t kLeastSsdChunks = 16;
constexpr int64_t kSsdFloatBytes = sizeof(float);

}  // namespace

SegmentSizes ssd_segment_sizes(const SsdShape& shape) {
  const int64_t bytes = SsdScratch(shape).backward() * shape.heads * kSsdFloatBytes;
  return {.tokens = shape.tokens,
          .chunk = kSsdChunk,
          .most = std::clamp(kSsdSegmentBytes / bytes, kLeastSsdChunks, kMostSegmentChunks)};
}

std::vector<ChunkSegment> ssd_segments(const SsdShape& shape, const Documents& documents) {
  return chunk_segments(documents, ssd_segment_sizes(shape));
}

int64_t ssd_scratch_bytes(const SsdShape& shape) {
  if (shape.heads == 0) return 0;
  const SsdScratch scratch(shape);
  const SegmentSizes sizes = ssd_segment_sizes(shape);
  return (sizes.most * scratch.backward() + sizes.slots() * scratch.state) * shape.heads * kSsdFloatBytes;
}

}  // namespace megatrain
