// Unequal documents grouped into few calls: the choice of calls, and why padding is harmless.
#include "megatrain/ops/attention_buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"
#include "megatrain/ops/attention_cut.h"
#include "tests/ops/cpu_fixture.h"
#include "tests/ops/run_cases.h"

namespace megatrain::testing {
namespace {

std::vector<int32_t> begins_of(const std::vector<int32_t>& documents) {
  std::vector<int32_t> begin{0};
  for (const int32_t tokens : documents) begin.push_back(begin.back() + tokens);
  return begin;
}

constexpr BucketForm kForms[] = {BucketForm::padded, BucketForm::ragged};

AttentionShape shape_of(const std::vector<int32_t>& documents) {
  return {.tokens = std::accumulate(documents.begin(), documents.end(), int64_t{0}),
          .heads = 14,
          .kv_heads = 2,
          .head_dim = 64};
}

Buckets buckets_of(const std::vector<int32_t>& documents, BucketForm form) {
  const std::vector<int32_t> begin = begins_of(documents);
  return make_buckets(shape_of(documents), begin.data(), static_cast<int64_t>(documents.size()),
                      form == BucketForm::ragged);
}

// Tilings of 1 to 20000 tokens into documents of 1 token up to a random longest length.
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

// Calls `check` with the tiling's documents and its buckets, in both forms.
template <class Check>
void for_each_tiling(const Check& check) {
  for (const std::vector<int32_t>& documents : random_tilings()) {
    for (const BucketForm form : kForms) check(documents, buckets_of(documents, form), form);
  }
}

TEST(AttentionBuckets, EveryDocumentIsInOneCallThatIsLongEnough) {
  for_each_tiling([](const std::vector<int32_t>& documents, const Buckets& buckets, BucketForm form) {
    std::vector<int> seen(documents.size());
    int64_t next = 0, computed = 0;
    for (const BucketCall& call : buckets.calls) {
      EXPECT_EQ(call.first, next);
      for (int64_t i = 0; i < call.count; ++i) {
        const auto document = static_cast<size_t>(buckets.documents.at(static_cast<size_t>(call.first + i)));
        ++seen.at(document);
        EXPECT_GE(call.length, bucket_length(documents[document], form));
        if (i == 0) {
          EXPECT_EQ(call.length, bucket_length(documents[document], form));
        }
        if (call.form == BucketForm::ragged) computed += bucket_length(documents[document], BucketForm::padded);
      }
      next += call.count;
      if (call.form == BucketForm::padded) computed += call.places * call.length;
    }
    EXPECT_EQ(seen, std::vector<int>(documents.size(), 1));
    EXPECT_EQ(buckets.computed_tokens, computed);
  });
}

TEST(AttentionBuckets, DocumentsLongerThanATileArePadded) {
  for_each_tiling([](const std::vector<int32_t>& documents, const Buckets& buckets, BucketForm form) {
    for (const BucketCall& call : buckets.calls)
      EXPECT_EQ(call.form, call.length > attention_tile(shape_of(documents)) ? BucketForm::padded : form);
  });
}

TEST(AttentionBuckets, PaddingIsLessThan128TokensOrAQuarterOfTheDocument) {
  for (const BucketForm form : kForms) {
    const double least = form == BucketForm::padded ? 64 : 128;
    for (int64_t tokens = 1; tokens <= 70000; ++tokens) {
      const int64_t length = bucket_length(tokens, form);
      ASSERT_GE(length, tokens);
      ASSERT_EQ(length % kShortestBucket, 0);
      ASSERT_LT(length - tokens, std::max(tokens <= 128 ? least : 128, static_cast<double>(tokens) / 4)) << tokens;
      ASSERT_EQ(bucket_length(length, form), length);
      ASSERT_LE(length, bucket_length(tokens + 1, form));
    }
  }
}

TEST(AttentionBuckets, ShapesOfCallAreFewAndAllAreListed) {
  EXPECT_EQ(bucket_lengths(8192, false).size(), 21u);
  EXPECT_EQ(bucket_lengths(8192, true).size(), 20u);
  for_each_tiling([](const std::vector<int32_t>& documents, const Buckets& buckets, BucketForm form) {
    const std::vector<int64_t> lengths =
        bucket_lengths(*std::max_element(documents.begin(), documents.end()), form == BucketForm::ragged);
    for (const BucketCall& call : buckets.calls) {
      EXPECT_EQ(call.places, bucket_places(shape_of(documents), call.length, call.form)) << "one shape a length";
      EXPECT_TRUE(std::binary_search(lengths.begin(), lengths.end(), call.length)) << call.length;
    }
  });
}

// Every call but the last is full, so few places have no document.
TEST(AttentionBuckets, OnlyTheLastCallHasPlacesWithoutADocument) {
  for_each_tiling([](const std::vector<int32_t>&, const Buckets& buckets, BucketForm) {
    for (size_t i = 0; i + 1 < buckets.calls.size(); ++i) EXPECT_EQ(buckets.calls[i].count, buckets.calls[i].places);
    EXPECT_GE(buckets.calls.back().count, 1);
    EXPECT_LE(buckets.calls.back().count, buckets.calls.back().places);
  });
}

TEST(AttentionBuckets, ACallIsBoundedByWhatScratchIsSizedFor) {
  for_each_tiling([](const std::vector<int32_t>& documents, const Buckets& buckets, BucketForm) {
    const AttentionShape shape = shape_of(documents);
    for (const BucketCall& call : buckets.calls) {
      if (call.form == BucketForm::padded) {
        EXPECT_LE(call.places, kBucketCallDocuments);
        const int64_t room = std::clamp<int64_t>(2 * shape.tokens, kShortestBucket, kBucketCallTokens);
        EXPECT_LE(call.places * call.length, std::max(room, call.length));
      } else {
        EXPECT_LE(call.places, kRaggedDocuments);
        const AttentionCut cut = ragged_cut(shape, call.length);
        EXPECT_LE(cut.documents * cut.kv_heads * 7 * call.length * call.length * 2,
                  std::max(kGiB, 7 * call.length * call.length * 2))
            << "of its pairs, or of one key head's";
      }
    }
  });
}

// Measured on an H200: with 65 documents of 504 tokens on average, attention took 2.17 ms per layer in 7 padded calls
// with their copies, and 1.50 ms in 3 ragged ones.
TEST(AttentionBuckets, RaggedCallsAreFewerWhereDocumentsAreMany) {
  const auto calls = [](const std::vector<int32_t>& documents, BucketForm form) {
    return buckets_of(documents, form).calls.size();
  };
  std::vector<int32_t> documents;
  for (int i = 0; i < 64; ++i) documents.push_back(100 + 14 * i);
  EXPECT_EQ(calls(documents, BucketForm::ragged), 2u);
  EXPECT_EQ(calls(documents, BucketForm::padded), 7u);
}

TEST(AttentionBuckets, CallsFollowFromTheLengthsAlone) {
  for_each_tiling([](const std::vector<int32_t>& documents, const Buckets& a, BucketForm form) {
    const Buckets b = buckets_of(documents, form);
    EXPECT_EQ(a.documents, b.documents);
    ASSERT_EQ(a.calls.size(), b.calls.size());
    EXPECT_EQ(a.pays, b.pays);
    std::vector<int32_t> turned(documents.rbegin(), documents.rend());
    const Buckets c = buckets_of(turned, form);
    ASSERT_EQ(a.calls.size(), c.calls.size());
    for (size_t i = 0; i < a.calls.size(); ++i) {
      EXPECT_EQ(a.calls[i].length, c.calls[i].length);
      EXPECT_EQ(a.calls[i].count, c.calls[i].count);
    }
  });
}

TEST(AttentionBuckets, TinyDocumentsDoNotPayAndOneLongDocumentAmongThemDoes) {
  for (const BucketForm form : kForms) {
    EXPECT_FALSE(buckets_of(std::vector<int32_t>(8192, 1), form).pays);
    EXPECT_FALSE(buckets_of(std::vector<int32_t>(800, 10), form).pays);
    EXPECT_TRUE(buckets_of(std::vector<int32_t>(200, 40), form).pays);
    EXPECT_TRUE(buckets_of({1000, 24}, form).pays);
    std::vector<int32_t> mixed(4096, 1);
    mixed.push_back(4096);
    EXPECT_TRUE(buckets_of(mixed, form).pays);
  }
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
