// The segments of CUDA's delta rule (chunk_segments.h) and their scratch.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/ops/chunk_segments.h"
#include "megatrain/ops/delta_rule.h"

namespace megatrain {

std::vector<ChunkSegment> delta_segments(const DeltaRuleShape& shape, const Documents& documents);

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
