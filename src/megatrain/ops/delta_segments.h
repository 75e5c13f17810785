// How CUDA's delta rule goes through the chunks of a micro-batch: some at a time, a segment, so that its scratch has a
// bound. A document that fits into a segment is never cut. Segments change no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/ops/delta_rule.h"

namespace megatrain {

inline constexpr int64_t kMostSegmentChunks = 64;

struct DeltaChunkPlace {
  int32_t row;     // the chunk's first token in the micro-batch
  int32_t tokens;  // at most kDeltaChunk
  int32_t first;   // of its document: 1 or 0
  int32_t last;
};

// The state between two segments that share a document is kept in a slot; -1: they share none. In backward its gradient
// replaces it.
struct DeltaSegment {
  std::vector<DeltaChunkPlace> chunks;
  int64_t slot_before = -1;
  int64_t slot_after = -1;
};

std::vector<DeltaSegment> delta_segments(const DeltaRuleShape& shape, const Documents& documents);

// Chunks of a segment, at most.
int64_t delta_segment_chunks(const DeltaRuleShape& shape);
// Slots of any micro-batch of this shape, at most.
int64_t delta_slots(const DeltaRuleShape& shape);

// fp32 numbers of scratch for a chunk of one value head, and for a state.
struct DeltaScratch {
  explicit DeltaScratch(const DeltaRuleShape& shape)
      : keys(kDeltaChunk * shape.key_dim),
        values(kDeltaChunk * shape.value_dim),
        pairs(kDeltaChunk * kDeltaChunk),
        state(shape.key_dim * shape.value_dim) {}

  int64_t forward() const { return keys + values + state; }
  int64_t backward() const { return 2 * forward() + pairs; }

  int64_t keys, values, pairs, state;
};

// Bytes of device memory that forward and backward need at most, whatever the documents; 0 without value heads.
int64_t delta_rule_scratch_bytes(const DeltaRuleShape& shape);

}  // namespace megatrain
