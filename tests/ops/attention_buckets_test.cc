// Unequal documents as calls over padded, equal ones: the choice of calls, and why padding is harmless.
#include "megatrain/ops/attention_buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "megatrain/base/rng.h"
#include "tests/ops/cpu_fixture.h"
#include "tests/ops/run_cases.h"

namespace megatrain::testing {
namespace {

std::vector<int32_t> begins_of(const std::vector<int32_t>& documents) {
  std::vector<int32_t> begin{0};
  for (const int32_t tokens : documents) begin.push_back(begin.back() + tokens);
  return begin;
}

Buckets buckets_of(const std::vector<int32_t>& documents) {
  const std::vector<int32_t> begin = begins_of(documents);
  return make_buckets(begin.data(), static_cast<int64_t>(documents.size()));
}

// Tilings of 1 to 20000 tokens by documents of 1 token to a random longest.
std::vector<std::vector<int32_t>> random_tilings() {
  std::vector<std::vector<int32_t>> tilings;
  uint64_t at = 0;
  const auto below = [&](int64_t bound) {
    return static_cast<int32_t>(random_below(5, 17, at++, static_cast<uint64_t>(bound)));
  };
  for (int i = 0; i < 300; ++i) {
    int32_t left = 1 + below(int64_t{1} << (1 + below(14)));
    const int32_t longest = 1 + below(left);
    std::vector<int32_t> documents;
    while (left > 0) {
      documents.push_back(std::min(1 + below(longest), left));
      left -= documents.back();
    }
    tilings.push_back(documents);
  }
  tilings.push_back(std::vector<int32_t>(8192, 1));
  tilings.push_back({20000});
  tilings.push_back({6000, 1, 1, 64, 65, 63, 512, 513, 640, 641, 4096, 4097});
  return tilings;
}

TEST(AttentionBuckets, EveryDocumentIsInOneCallThatIsLongEnough) {
  for (const std::vector<int32_t>& documents : random_tilings()) {
    const Buckets buckets = buckets_of(documents);
    std::vector<int> seen(documents.size());
    int64_t next = 0, padded = 0;
    for (const BucketCall& call : buckets.calls) {
      EXPECT_EQ(call.first, next);
      for (int64_t i = 0; i < call.count; ++i) {
        const auto document = static_cast<size_t>(buckets.documents.at(static_cast<size_t>(call.first + i)));
        ++seen.at(document);
        EXPECT_GE(call.length, bucket_length(documents[document]));
        if (i == 0) {
          EXPECT_EQ(call.length, bucket_length(documents[document]));
        }
      }
      next += call.count;
      padded += call.places * call.length;
    }
    EXPECT_EQ(seen, std::vector<int>(documents.size(), 1));
    EXPECT_EQ(buckets.padded_tokens, padded);
  }
}

TEST(AttentionBuckets, PaddingIsLessThan128TokensOrAQuarterOfTheDocument) {
  for (int64_t tokens = 1; tokens <= 70000; ++tokens) {
    const int64_t length = bucket_length(tokens);
    ASSERT_GE(length, tokens);
    ASSERT_EQ(length % kShortestBucket, 0);
    ASSERT_LT(length - tokens, std::max<double>(tokens <= 128 ? 64 : 128, static_cast<double>(tokens) / 4)) << tokens;
    ASSERT_EQ(bucket_length(length), length);
    ASSERT_LE(length, bucket_length(tokens + 1));
  }
}

TEST(AttentionBuckets, ShapesOfCallAreFew) {
  std::set<int64_t> lengths;
  for (int64_t tokens = 1; tokens <= 8192; ++tokens) lengths.insert(bucket_length(tokens));
  EXPECT_EQ(lengths.size(), 21u);
  for (const std::vector<int32_t>& documents : random_tilings()) {
    const int64_t tokens = std::accumulate(documents.begin(), documents.end(), int64_t{0});
    for (const BucketCall& call : buckets_of(documents).calls)
      EXPECT_EQ(call.places, bucket_documents(call.length, tokens)) << "one shape a length";
  }
}

// Every call but the last is full, so places without a document are few.
TEST(AttentionBuckets, OnlyTheLastCallHasPlacesWithoutADocument) {
  for (const std::vector<int32_t>& documents : random_tilings()) {
    const Buckets buckets = buckets_of(documents);
    for (size_t i = 0; i + 1 < buckets.calls.size(); ++i) EXPECT_EQ(buckets.calls[i].count, buckets.calls[i].places);
    EXPECT_GE(buckets.calls.back().count, 1);
    EXPECT_LE(buckets.calls.back().count, buckets.calls.back().places);
  }
}

TEST(AttentionBuckets, ACallIsBoundedByWhatScratchIsSizedFor) {
  for (const std::vector<int32_t>& documents : random_tilings()) {
    const int64_t tokens = std::accumulate(documents.begin(), documents.end(), int64_t{0});
    for (const BucketCall& call : buckets_of(documents).calls) {
      EXPECT_LE(call.places, kBucketCallDocuments);
      const int64_t room = std::clamp<int64_t>(2 * tokens, kShortestBucket, kBucketCallTokens);
      EXPECT_LE(call.places * call.length, std::max(room, call.length));
    }
  }
}

TEST(AttentionBuckets, CallsFollowFromTheLengthsAlone) {
  for (const std::vector<int32_t>& documents : random_tilings()) {
    const Buckets a = buckets_of(documents), b = buckets_of(documents);
    EXPECT_EQ(a.documents, b.documents);
    ASSERT_EQ(a.calls.size(), b.calls.size());
    EXPECT_EQ(a.pays, b.pays);
    std::vector<int32_t> turned(documents.rbegin(), documents.rend());
    const Buckets c = buckets_of(turned);
    ASSERT_EQ(a.calls.size(), c.calls.size());
    for (size_t i = 0; i < a.calls.size(); ++i) {
      EXPECT_EQ(a.calls[i].length, c.calls[i].length);
      EXPECT_EQ(a.calls[i].count, c.calls[i].count);
    }
  }
}

TEST(AttentionBuckets, TinyDocumentsDoNotPayAndOneLongDocumentAmongThemDoes) {
  EXPECT_FALSE(buckets_of(std::vector<int32_t>(8192, 1)).pays);
  EXPECT_FALSE(buckets_of(std::vector<int32_t>(800, 10)).pays);
  EXPECT_TRUE(buckets_of(std::vector<int32_t>(200, 40)).pays);
  EXPECT_TRUE(buckets_of({1000, 24}).pays);
  std::vector<int32_t> mixed(4096, 1);
  mixed.push_back(4096);
  EXPECT_TRUE(buckets_of(mixed).pays);
}

TEST(AttentionBuckets, ZerosBehindADocumentChangeNoBitOfItsResults) {
  CpuFixture cpu({.threads = 2});
  for (const int64_t window : {0, 20}) {
    const AttentionCase alone{DType::f32, {75}, 4, 2, 16, window};
    AttentionCase padded = alone;
    padded.documents = {128};
    const OpRun real = run(cpu.harness, alone, 13);
    Values given;
    for (const auto& [name, values] : real.in) {
      given[name] = values;
      given[name].resize(values.size() / 75 * 128, 0.0);
    }
    const OpRun more = run(cpu.harness, padded, 13, given);
    for (const auto& [name, values] : real.out) {
      const Vector& wide = more.out.at(name);
      EXPECT_EQ(Vector(wide.begin(), wide.begin() + static_cast<int64_t>(values.size())), values) << name;
    }
  }
}

}  // namespace
}  // namespace megatrain::testing
