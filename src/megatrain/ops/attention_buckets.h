// Documents of unequal length as few calls of attention.
//
// A call has a length and a number of places, each for one document of at most that length; documents go to calls from
// long to short, so that those of a call are alike, and every call of a length has as many places: few shapes of call
// occur, and a library's graphs of them can be built before the first step. The calls follow from the documents'
// lengths alone. There are two forms:
//
// A *ragged* call reads documents where they lie and computes no more than each has. Its calls are large.
//
// A *padded* call is over copies, padded to the length. Padding behind a causal document changes nothing for its
// tokens: none of them sees what comes later, and a padded token whose query, output and output's gradient are zero
// adds zero to every gradient. So a kernel for equal documents serves unequal ones, at the price of copies and of pairs
// of tokens that no document has. It is for documents longer than a tile, and where the library takes no ragged call.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/ops/attention.h"

namespace megatrain {

inline constexpr int64_t kShortestBucket = 64;
inline constexpr int64_t kBucketCallTokens = 8192;  // padded tokens of a padded call, unless one document is longer
inline constexpr int64_t kBucketCallDocuments = kBucketCallTokens / kShortestBucket;

enum class BucketForm { padded, ragged };

// The lengths of calls: 64 (of ragged ones 128), then multiples of 128 up to 512, above it of a quarter of the power of
// two below. The least that holds a document of so many tokens; adds less than 128 tokens up to 512, then less than a
// quarter.
int64_t bucket_length(int64_t tokens, BucketForm form);

// The form of calls of a length, where the library takes ragged ones or not.
BucketForm bucket_form(const AttentionShape& shape, int64_t length, bool takes_ragged);

// The places of a call of a length, a power of two.
int64_t bucket_places(const AttentionShape& shape, int64_t length, BucketForm form);

// Every length of a call that documents of up to `longest` tokens may need, ascending.
std::vector<int64_t> bucket_lengths(int64_t longest, bool takes_ragged);

// Documents [first, first + count) of Buckets::documents; the other places have none.
struct BucketCall {
  BucketForm form;
  int64_t length;
  int64_t first;
  int64_t count;
  int64_t places;
};

struct Buckets {
  // From long to short. A call is as long as its first document needs; where documents of that length do not fill it,
  // shorter ones do.
  std::vector<BucketCall> calls;
  std::vector<int32_t> documents;  // every document once, from long to short
  int64_t computed_tokens = 0;     // of padded calls every place, of ragged ones each document up to its own bucket
  // Tiny documents would be padding mostly: false when a kernel that walks the real pairs of tokens is the faster one.
  bool pays = false;
};

// `begin` (count + 1): first token of each document, then shape.tokens. No document is empty.
Buckets make_buckets(const AttentionShape& shape, const int32_t* begin, int64_t count, bool takes_ragged);

}  // namespace megatrain
