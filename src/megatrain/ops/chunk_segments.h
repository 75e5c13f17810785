// How CUDA's recurrences go through the chunks of a micro-batch: some at a time, a segment, so that scratch has a
// bound. A document that fits into a segment is never cut. Segments change no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/ops/attention.h"

namespace megatrain {

inline constexpr int64_t kMostSegmentChunks = 64;

struct ChunkPlace {
  int32_t row;     // the chunk's first token in the micro-batch
  int32_t tokens;  // at most a chunk's
  int32_t first;   // of its document: 1 or 0
  int32_t last;
};

// The state between two segments that share a document is kept in a slot; -1: they share none. In backward its gradient
// replaces it.
struct ChunkSegment {
  std::vector<ChunkPlace> chunks;
  int64_t slot_before = -1;
  int64_t slot_after = -1;
};

struct SegmentSizes {
  int64_t tokens;  // of the micro-batch
  int64_t chunk;   // tokens of a chunk
  int64_t most;    // chunks of a segment

  // Slots of any such micro-batch, at most: every slot follows a full segment of one document.
  int64_t slots() const { return tokens / (chunk * most); }
};
std::vector<ChunkSegment> chunk_segments(const Documents& documents, const SegmentSizes& sizes);

}  // namespace megatrain
