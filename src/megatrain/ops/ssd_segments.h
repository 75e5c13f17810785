// The segments of CUDA's recurrence of Mamba 2 (chunk_segments.h) and their scratch.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/ops/chunk_segments.h"
#include "megatrain/ops/ssd.h"

namespace megatrain {

SegmentSizes ssd_segment_sizes(const SsdShape& shape);
std::vector<ChunkSegment> ssd_segments(const SsdShape& shape, const Documents& documents);

// fp32 numbers of scratch for one head: of a chunk, and of a state.
struct SsdScratch {
  explicit SsdScratch(const SsdShape& shape) : pairs(kSsdChunk * kSsdChunk), state(shape.state_dim * shape.head_dim) {}

  int64_t forward() const { return 1 + state; }  // what the chunk keeps of a state, and the state
  int64_t backward() const { return forward() + state + pairs; }

  int64_t pairs, state;
};

// Bytes of device memory that forward and backward need at most, whatever the documents; 0 without heads.
int64_t ssd_scratch_bytes(const SsdShape& shape);

}  // namespace megatrain
