#include "megatrain/ops/delta_segments.h"

#include <algorithm>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
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

// Every slot follows a full segment of one document.
int64_t delta_slots(const DeltaRuleShape& shape) { return shape.tokens / (kDeltaChunk * delta_segment_chunks(shape)); }

std::vector<DeltaSegment> delta_segments(const DeltaRuleShape& shape, const Documents& documents) {
  const int64_t most = delta_segment_chunks(shape);
  ensure(documents.host_begin[documents.count] == shape.tokens, "documents tile the micro-batch");
  std::vector<DeltaSegment> segments;
  int64_t slots = 0;
  for (int64_t d = 0; d < documents.count; ++d) {
    const int64_t begin = documents.host_begin[d], end = documents.host_begin[d + 1];
    const int64_t chunks = ceil_div(end - begin, kDeltaChunk);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const bool cut = chunk > 0 && std::ssize(segments.back().chunks) == most;
      const bool starts = chunk == 0 && (segments.empty() || std::ssize(segments.back().chunks) + chunks > most);
      if (cut) segments.back().slot_after = slots;
      if (cut || starts) segments.push_back({.chunks = {}, .slot_before = cut ? slots++ : -1, .slot_after = -1});
      const int64_t row = begin + chunk * kDeltaChunk;
      segments.back().chunks.push_back({.row = static_cast<int32_t>(row),
                                        .tokens = static_cast<int32_t>(std::min(kDeltaChunk, end - row)),
                                        .first = chunk == 0,
                                        .last = chunk + 1 == chunks});
    }
  }
  return segments;
}

int64_t delta_rule_scratch_bytes(const DeltaRuleShape& shape) {
  if (shape.value_heads == 0) return 0;
  const DeltaScratch scratch(shape);
  const int64_t of_chunks = delta_segment_chunks(shape) * scratch.backward();
  const int64_t of_states = delta_slots(shape) * scratch.state;
  return (of_chunks + of_states) * shape.value_heads * kFloatBytes;
}

}  // namespace megatrain
