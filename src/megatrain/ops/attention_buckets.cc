#include "megatrain/ops/attention_buckets.h"

#include <algorithm>
#include <numeric>

#include "megatrain/base/math.h"
#include "megatrain/ops/attention_cut.h"

namespace megatrain {

namespace {

constexpr int64_t kEvenLengths = 512, kEvenStep = 128;  // up to kEvenLengths, lengths are multiples of kEvenStep

// The memory traffic of one computed token takes about as long as the simple kernel's arithmetic on this many (query,
// key) pairs. For a document of n tokens, the simple kernel computes n (n + 64) / 2 pairs: half a square plus the
// corners of tiles.
constexpr int64_t kPairsOfComputedToken = 8;
constexpr int64_t kTileCorner = 64;

}  // namespace

int64_t bucket_length(int64_t tokens, BucketForm form) {
  if (tokens <= kShortestBucket && form == BucketForm::padded) return kShortestBucket;
  if (tokens <= kEvenLengths) return round_up(std::max(tokens, int64_t{1}), kEvenStep);
  return round_up(tokens, power_of_two_below(tokens - 1) / 4);
}

BucketForm bucket_form(const AttentionShape& shape, int64_t length, bool takes_ragged) {
  return takes_ragged && length <= attention_tile(shape) ? BucketForm::ragged : BucketForm::padded;
}

int64_t bucket_places(const AttentionShape& shape, int64_t length, BucketForm form) {
  if (form == BucketForm::ragged) return ragged_cut(shape, length).documents;
  const int64_t room = std::clamp(power_of_two_above(shape.tokens), kShortestBucket, kBucketCallTokens);
  return power_of_two_below(std::max<int64_t>(room / length, 1));
}

std::vector<int64_t> bucket_lengths(int64_t longest, bool takes_ragged) {
  const BucketForm form = takes_ragged ? BucketForm::ragged : BucketForm::padded;
  std::vector<int64_t> lengths;
  for (int64_t length = bucket_length(1, form); length <= bucket_length(longest, form);
       length = bucket_length(length + 1, form))
    lengths.push_back(length);
  return lengths;
}

Buckets make_buckets(const AttentionShape& shape, const int32_t* begin, int64_t count, bool takes_ragged) {
  Buckets buckets;
  const auto tokens_of = [&](int64_t document) { return int64_t{begin[document + 1]} - begin[document]; };
  const auto length_of = [&](int64_t document) {
    return bucket_length(tokens_of(document), takes_ragged ? BucketForm::ragged : BucketForm::padded);
  };
  buckets.documents.resize(static_cast<size_t>(count));
  std::iota(buckets.documents.begin(), buckets.documents.end(), 0);
  std::stable_sort(buckets.documents.begin(), buckets.documents.end(),
                   [&](int32_t a, int32_t b) { return length_of(a) > length_of(b); });

  int64_t pairs = 0;
  for (int64_t d = 0; d < count; ++d) pairs += tokens_of(d) * (tokens_of(d) + kTileCorner) / 2;
  for (int64_t first = 0; first < count;) {
    const int64_t length = length_of(buckets.documents[static_cast<size_t>(first)]);
    const BucketForm form = bucket_form(shape, length, takes_ragged);
    const int64_t places = bucket_places(shape, length, form);
    buckets.calls.push_back({form, length, first, std::min(places, count - first), places});
    const int64_t end = first + buckets.calls.back().count;
    if (form == BucketForm::padded) buckets.computed_tokens += places * length;
    for (; first < end; ++first) {
      if (form == BucketForm::ragged)
        buckets.computed_tokens +=
            bucket_length(tokens_of(buckets.documents[static_cast<size_t>(first)]), BucketForm::padded);
    }
  }
  buckets.pays = pairs >= kPairsOfComputedToken * buckets.computed_tokens;
  return buckets;
}

}  // namespace megatrain
