#include "megatrain/ops/attention_buckets.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "megatrain/base/math.h"

namespace megatrain {

namespace {

constexpr int64_t kEvenLengths = 512, kEvenStep = 128;  // up to there lengths are multiples of the step

// A padded token costs about as much memory traffic as the simple kernel's arithmetic on this many pairs, of which it
// has n (n + 64) / 2 for a document of n tokens: half a square, and the corners of tiles.
constexpr int64_t kPairsOfPaddedToken = 8;
constexpr int64_t kTileCorner = 64;

int64_t power_of_two_below(int64_t n) { return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); }
int64_t power_of_two_above(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); }

}  // namespace

int64_t bucket_length(int64_t tokens) {
  if (tokens <= kShortestBucket) return kShortestBucket;
  if (tokens <= kEvenLengths) return round_up(tokens, kEvenStep);
  return round_up(tokens, power_of_two_below(tokens - 1) / 4);
}

int64_t bucket_documents(int64_t length, int64_t tokens) {
  const int64_t room = std::clamp(power_of_two_above(tokens), kShortestBucket, kBucketCallTokens);
  return power_of_two_below(std::max<int64_t>(room / length, 1));
}

Buckets make_buckets(const int32_t* begin, int64_t count) {
  Buckets buckets;
  const auto tokens_of = [&](int64_t document) { return int64_t{begin[document + 1]} - begin[document]; };
  const auto length_of = [&](int64_t document) { return bucket_length(tokens_of(document)); };
  buckets.documents.resize(static_cast<size_t>(count));
  std::iota(buckets.documents.begin(), buckets.documents.end(), 0);
  std::stable_sort(buckets.documents.begin(), buckets.documents.end(),
                   [&](int32_t a, int32_t b) { return length_of(a) > length_of(b); });

  int64_t pairs = 0;
  for (int64_t d = 0; d < count; ++d) pairs += tokens_of(d) * (tokens_of(d) + kTileCorner) / 2;
  for (int64_t first = 0; first < count;) {
    const int64_t length = length_of(buckets.documents[static_cast<size_t>(first)]),
                  places = bucket_documents(length, begin[count]);
    buckets.calls.push_back({length, first, std::min(places, count - first), places});
    buckets.padded_tokens += places * length;
    first += buckets.calls.back().count;
  }
  buckets.pays = pairs >= kPairsOfPaddedToken * buckets.padded_tokens;
  return buckets;
}

}  // namespace megatrain
