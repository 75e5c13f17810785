#include "megatrain/data/batch.h"

#include <algorithm>

namespace megatrain {

void MicroBatch::clear() {
  for (auto* list : {&tokens, &labels, &positions, &document_begin}) list->clear();
  trained = 0;
}

void MicroBatch::close() {
  const int64_t count = static_cast<int64_t>(tokens.size());
  document_begin.push_back(static_cast<int32_t>(count));
  longest = 0;
  const int64_t documents = static_cast<int64_t>(document_begin.size()) - 1;
  for (int64_t d = 0; d < documents; ++d)
    longest = std::max<int64_t>(longest, document_begin[d + 1] - document_begin[d]);
  uniform = longest * documents == count;
}

}  // namespace megatrain
