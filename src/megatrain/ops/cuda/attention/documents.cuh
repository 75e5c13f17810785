// Which document a token is in.
#pragma once

#include <cstdint>

#include "megatrain/ops/attention.h"

namespace megatrain {

struct DocumentSpan {
  int64_t begin, end;
};

__device__ inline DocumentSpan document_of(const Documents& documents, int64_t token) {
  if (documents.uniform) {
    const int64_t begin = token / documents.longest * documents.longest;
    return {begin, begin + documents.longest};
  }
  int64_t low = 0, high = documents.count;  // begin[low] <= token < begin[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (documents.begin[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return {documents.begin[low], documents.begin[low + 1]};
}

}  // namespace megatrain
