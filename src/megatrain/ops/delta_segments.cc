#include "megatrain/ops/delta_segments.h"

#include <algorithm>

#include "megatrain/base/units.h"

namespace megatrain {

namespace {

constexpr int64_t kSegmentBytes = 640 * kMiB;  // of a segment's scratch, unless a segment would be very short
constexpr int64_t kLeastSegmentChunks = 16;

constexpr int64_t kFloatBytes = sizeof(float);

}  // namespace

int64_t delta_segment_chunks(const DeltaRuleShape& shape) {
  const int64_t bytes = DeltaScratch(shape).backward() * shape.value_heads * kFloatBytes;
  return std::clamp(kSegmentBytes / bytes, kLeastSegmentChunks, kMostSegmentChunks);
}

int64_t delta_slots(const DeltaRuleShape& shape) {
  return SegmentSizes{.tokens = shape.tokens, .chunk = kDeltaChunk, .most = delta_segment_chunks(shape)}.slots();
}

std::vector<ChunkSegment> delta_segments(const DeltaRuleShape& shape, const Documents& documents) {
  return chunk_segments(documents, {.tokens = shape.tokens, .chunk = kDeltaChunk, .most = delta_segment_chunks(shape)});
}

int64_t delta_rule_scratch_bytes(const DeltaRuleShape& shape) {
  if (shape.value_heads == 0) return 0;
  const DeltaScratch scratch(shape);
  const int64_t of_chunks = delta_segment_chunks(shape) * scratch.backward();
  const int64_t of_states = delta_slots(shape) * scratch.state;
  return (of_chunks + of_states) * shape.value_heads * kFloatBytes;
}

}  // namespace megatrain
