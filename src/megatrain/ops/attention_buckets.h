// Documents of unequal length as calls over padded documents of equal length.
//
// Padding behind a causal document changes nothing for its tokens: none of them sees what comes later, and a padded
// token whose query, output and output's gradient are zero adds zero to every gradient. So a kernel for equal documents
// serves unequal ones. The calls follow from the documents' lengths alone.
#pragma once

#include <cstdint>
#include <vector>

namespace megatrain {

inline constexpr int64_t kShortestBucket = 64;
inline constexpr int64_t kBucketCallTokens = 4096;  // padded tokens of a call, unless one document is longer
inline constexpr int64_t kBucketCallDocuments = kBucketCallTokens / kShortestBucket;

// What a document of so many tokens is padded to: a multiple of 64 up to 512, above it of a quarter of the power of two
// below. Adds less than the larger of 64 and a quarter of the tokens.
int64_t bucket_length(int64_t tokens);

// The most documents of a call, a power of two, when documents of `length` fill a micro-batch of `tokens`.
int64_t bucket_documents(int64_t length, int64_t tokens);

// Documents [first, first + count) of Buckets::documents, each padded to `length`. `count` is a power of two, so that
// few shapes of call occur.
struct BucketCall {
  int64_t length;
  int64_t first;
  int64_t count;
};

struct Buckets {
  std::vector<BucketCall> calls;   // from long to short
  std::vector<int32_t> documents;  // every document once
  int64_t padded_tokens = 0;       // of all calls
  // Tiny documents would be padding mostly: false when a kernel that walks the real pairs of tokens is the faster one.
  bool pays = false;
};

// `begin` (count + 1): first token of each document, then the tokens of the micro-batch. No document is empty.
Buckets make_buckets(const int32_t* begin, int64_t count);

}  // namespace megatrain
