// Documents of unequal length as calls over padded documents of equal length.
//
// Padding behind a causal document changes nothing for its tokens: none of them sees what comes later, and a padded
// token whose query, output and output's gradient are zero adds zero to every gradient. So a kernel for equal documents
// serves unequal ones. Likewise a call may hold documents without a token, so calls of a length all have as many
// documents: few shapes of call occur, and a library's graphs of them can be built before the first step. The calls
// follow from the documents' lengths alone.
#pragma once

#include <cstdint>
#include <vector>

namespace megatrain {

inline constexpr int64_t kShortestBucket = 64;
inline constexpr int64_t kBucketCallTokens = 8192;  // padded tokens of a call, unless one document is longer
inline constexpr int64_t kBucketCallDocuments = kBucketCallTokens / kShortestBucket;

// The lengths of calls: 64, then multiples of 128 up to 512, above it of a quarter of the power of two below. The least
// that holds a document of so many tokens; adds less than 64 tokens up to 128, less than 128 up to 512, then less than
// a quarter.
int64_t bucket_length(int64_t tokens);

// The documents of a call of `length`, a power of two, in a micro-batch of `tokens`.
int64_t bucket_documents(int64_t length, int64_t tokens);

// Documents [first, first + count) of Buckets::documents, each padded to `length`; the others of `places` have no
// token.
struct BucketCall {
  int64_t length;
  int64_t first;
  int64_t count;
  int64_t places;  // bucket_documents() of the length
};

struct Buckets {
  // From long to short. A call is as long as its first document needs; where documents of that length do not fill it,
  // shorter ones do.
  std::vector<BucketCall> calls;
  std::vector<int32_t> documents;  // every document once, from long to short
  int64_t padded_tokens = 0;       // of all calls, every place of them
  // Tiny documents would be padding mostly: false when a kernel that walks the real pairs of tokens is the faster one.
  bool pays = false;
};

// `begin` (count + 1): first token of each document, then the tokens of the micro-batch. No document is empty.
Buckets make_buckets(const int32_t* begin, int64_t count);

}  // namespace megatrain
