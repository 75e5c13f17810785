#include "megatrain/ops/chunk_segments.h"

#include <algorithm>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"

namespace megatrain {

std::vector<ChunkSegment> chunk_segments(const Documents& documents, const SegmentSizes& sizes) {
  ensure(documents.host_begin[documents.count] == sizes.tokens, "documents tile the micro-batch");
  std::vector<ChunkSegment> segments;
  int64_t slots = 0;
  for (int64_t d = 0; d < documents.count; ++d) {
    const int64_t begin = documents.host_begin[d], end = documents.host_begin[d + 1];
    const int64_t chunks = ceil_div(end - begin, sizes.chunk);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const bool cut = chunk > 0 && std::ssize(segments.back().chunks) == sizes.most;
      const bool starts = chunk == 0 && (segments.empty() || std::ssize(segments.back().chunks) + chunks > sizes.most);
      if (cut) segments.back().slot_after = slots;
      if (cut || starts) segments.push_back({.chunks = {}, .slot_before = cut ? slots++ : -1, .slot_after = -1});
      const int64_t row = begin + chunk * sizes.chunk;
      segments.back().chunks.push_back({.row = static_cast<int32_t>(row),
                                        .tokens = static_cast<int32_t>(std::min(sizes.chunk, end - row)),
                                        .first = chunk == 0,
                                        .last = chunk + 1 == chunks});
    }
  }
  return segments;
}

}  // namespace megatrain
