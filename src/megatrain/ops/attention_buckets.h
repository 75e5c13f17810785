// Groups documents of unequal length into a few calls of attention.
//
// A call has a length and a number of places, each for one document of at most that length. Documents are assigned to
// calls from long to short, so that those of one call have similar lengths. All calls of a length have the same number
// of places. So there are few distinct call shapes, and a library's graphs for them can be built before the first step.
// The calls depend only on the documents' lengths. There are two forms:
//
// A *ragged* call reads documents in place and computes no more than each document's tokens. Its calls are large.
//
// A *padded* call works on copies that are padded to the length. Padding after a causal document does not affect its
// tokens, because none of them sees a later token. A padded token has zero query, output and output gradient, so it
// adds zero to every gradient. So a kernel for documents of equal length also works for unequal ones. The price is the
// copies, and pairs of tokens that no document has. Padded calls are for documents longer than a tile, and for
// libraries without ragged calls.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/ops/attention.h"

namespace megatrain {

inline constexpr int64_t kShortestBucket = 64;
inline constexpr int64_t kBucketCallTokens = 8192;  // padded tokens per padded call, unless one document is longer
inline constexpr int64_t kBucketCallDocuments = kBucketCallTokens / kShortestBucket;

enum class BucketForm { padded, ragged };

// The smallest call length that holds a document of `tokens` tokens. Lengths are 64 (padded calls only), multiples of
// 128 up to 512, then multiples of a quarter of the power of two below. So padding is less than 128 tokens up to 512,
// and less than a quarter above.
int64_t bucket_length(int64_t tokens, BucketForm form);

// The form of calls of this length, depending on whether the library supports ragged calls.
BucketForm bucket_form(const AttentionShape& shape, int64_t length, bool takes_ragged);

// The number of places in a call of this length, a power of two.
int64_t bucket_places(const AttentionShape& shape, int64_t length, BucketForm form);

// Every call length that documents of up to `longest` tokens may need, ascending.
std::vector<int64_t> bucket_lengths(int64_t longest, bool takes_ragged);

// A call for documents [first, first + count) of Buckets::documents. Its other places are empty.
struct BucketCall {
  BucketForm form;
  int64_t length;
  int64_t first;
  int64_t count;
  int64_t places;
};

struct Buckets {
  // From long to short. The first document of a call determines its length; if documents of that length do not fill the
  // call, shorter ones do.
  std::vector<BucketCall> calls;
  std::vector<int32_t> documents;  // every document once, from long to short
  // Padded calls compute all places; ragged calls compute each document, rounded up to its own bucket.
  int64_t computed_tokens = 0;
  // False if a kernel that computes only the real pairs of tokens is faster: tiny documents would be mostly padding.
  bool pays = false;
};

// `begin` (count + 1): first token of each document, then shape.tokens. No document is empty.
Buckets make_buckets(const AttentionShape& shape, const int32_t* begin, int64_t count, bool takes_ragged);

}  // namespace megatrain
