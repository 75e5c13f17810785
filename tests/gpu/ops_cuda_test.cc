// CUDA compared with the CPU on the same cases, and with itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatrain/base/units.h"
#include "tests/gpu/cuda_fixture.h"
#include "tests/ops/adamw_coded_check.h"
#include "tests/ops/adamw_update_check.h"
#include "tests/ops/columns_check.h"
#include "tests/ops/cpu_fixture.h"
#include "tests/ops/dropout_check.h"
#include "tests/ops/heads_check.h"
#include "tests/ops/expert_layer.h"
#include "tests/ops/run_cases.h"
#include "tests/ops/scale_check.h"
#include "tests/ops/unpack_check.h"

namespace megatrain::testing {
namespace {

double largest(const Vector& values) {
  double most = 0;
  for (double value : values) most = std::max(most, std::fabs(value));
  return most;
}

// The scale for differences: the tensor's largest magnitude. A gradient that is zero by symmetry holds only rounding
// noise, so its scale is the largest gradient of the case.
double scale_of(const std::string& name, const Values& values) {
  const double own = largest(values.at(name));
  if (!name.starts_with("grad_")) return own;
  double most = 0;
  for (const auto& [other, tensor] : values) {
    if (other.starts_with("grad_")) most = std::max(most, largest(tensor));
  }
  return own < 1e-3 * most ? most : own;
}

// fp32: 1e-5 of the scale. bf16: 2 units in the last place of the scale.
double tolerance(DType dtype, double scale) {
  if (scale == 0) return 0;
  return dtype == DType::f32 ? 1e-5 * scale : 2 * std::exp2(std::floor(std::log2(scale)) - 7);
}

void expect_close(const OpRun& cuda, const OpRun& cpu, DType dtype, const std::string& name) {
  ASSERT_EQ(cuda.in, cpu.in) << name;
  for (const auto& [tensor, wanted] : cpu.out) {
    const Vector& got = cuda.out.at(tensor);
    ASSERT_EQ(got.size(), wanted.size()) << name << ": " << tensor;
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double difference = std::fabs(got[i] - wanted[i]);
      if (!(difference <= worst)) {
        worst = difference;
        at = i;
        if (std::isnan(difference)) break;
      }
    }
    EXPECT_LE(worst, cpu.exact.contains(tensor) ? 0 : tolerance(dtype, scale_of(tensor, cpu.out)))
        << name << ": " << tensor << "[" << at << "] is " << got[at] << ", the CPU has " << wanted[at];
  }
}

TEST(CudaOps, PackedWeightsHaveTheBitsOfTheDecoder) {
  CudaFixture cuda;
  for (const UnpackCase& c : unpack_cases()) expect_unpacked(*cuda.device, *cuda.ops, *cuda.stream, c);
}

TEST(CudaOps, DropoutDropsWhatTheKeyNames) {
  CudaFixture cuda;
  for (const DropoutCase& c : dropout_cases()) expect_dropped(*cuda.device, *cuda.ops, *cuda.stream, c);
}

TEST(CudaOps, ColumnsAreMovedAndLeaveZeros) {
  CudaFixture cuda;
  for (const ColumnsCase& c : columns_cases()) expect_columns_moved(*cuda.device, *cuda.ops, *cuda.stream, c);
}

TEST(CudaOps, HeadsAreCopiedSharedSummedAndPadded) {
  CudaFixture cuda;
  for (const HeadsCase& c : heads_cases()) expect_heads_moved(*cuda.device, *cuda.ops, *cuda.stream, c);
}

TEST(CudaOps, LearnedFactorsMultiplyAndHaveTheirGradients) {
  CudaFixture cuda;
  check_scales(cuda.harness);
}

TEST(CudaOps, EveryCaseAgreesWithTheCpu) {
  CudaFixture cuda;
  CpuFixture cpu({});
  for (const NamedCase& c : all_cases()) {
    SCOPED_TRACE(c.name);
    ASSERT_NO_THROW(expect_close(c.run(cuda.harness, 7), c.run(cpu.harness, 7), c.dtype, c.name));
  }
}

// Rows of whole 16-byte packs, as in real models, and the widest heads: the shared cases mostly have odd shapes.
TEST(CudaOps, AlignedShapesAgreeWithTheCpu) {
  CudaFixture cuda;
  CpuFixture cpu({});
  const auto check = [&](const auto& c) {
    SCOPED_TRACE(name_of(c));
    ASSERT_NO_THROW(expect_close(run(cuda.harness, c, 11), run(cpu.harness, c, 11), c.dtype, name_of(c)));
  };
  for (const DType dtype : {DType::bf16, DType::f32}) {
    check(EmbeddingCase{dtype, 20, 90, 1536});
    check(RmsNormCase{dtype, 40, 3584, 1, 8, true, true});
    check(RmsNormCase{dtype, 20, 128, 28, 16, false, false, true});
    check(RopeCase{dtype, 30, 6, 128, 256});
    check(LinearCase{dtype, 256, 512, 384, true, true, 16});
    check(DoraCase{dtype, 40, 512, 384, 16, 2.0f, -1, false, true, true, 16});
    check(GatedCase{dtype, 9, 2304, true});
    check(GatedCase{dtype, 9, 2304, true, Activation::gelu_tanh});
    check(OutputGateCase{dtype, 90, 256, true});
    check(GatedCase{dtype, 9, 2304, true, Activation::silu, true});
    check(EmbeddingCase{dtype, 20, 90, 1536, 39.25f});
    check(RmsNormCase{dtype, 40, 3584, 1, 8, true, true, false, 1.0f, true});
    check(RmsNormCase{dtype, 20, 128, 28, 16, false, false, true, 1.0f});
    check(RopeCase{dtype, 30, 6, 128, 256, 96});
    check(RopeCase{dtype, 30, 6, 128, 256, 64, true});
    check(AttentionCase{dtype, {40, 25}, 2, 1, 256, 20, 0.077f});
    check(CrossEntropyCase{dtype, 7, 5120, 5, false, 4.0f});
    check(AttentionCase{dtype, {40, 25}, 2, 1, 256});
    check(AttentionCase{dtype, {37}, 2, 2, 130, 9});
    check(AttentionCase{dtype, {300, 200}, 8, 2, 64, 128, 0, true});
    check(AttentionCase{dtype, {256, 256}, 8, 1, 64, 0, 0, true, true});
    check(RouteCase{dtype, 500, 128, 8, RouterScore::softmax_of_all, 1, false, true, 7});
    check(ExpertRowsCase{dtype, 700, 1024, 32, 4, 8, 16});
    check(ExpertsLinearCase{dtype, {130, 0, 512, 7, 64}, 512, 384, true, true, 0, 64});
    check(ExpertsLinearCase{dtype, {64, 200, 1, 300}, 256, 640, false, false, 16});
    check(ExpertsGatedCase{dtype, {40, 0, 70}, 1536, 512, {Activation::gelu_sigmoid, 7.0f, 1.0f}, true, 30});
  }
}

TEST(CudaOps, EveryCaseGivesTheSameBitsAgain) {
  CudaFixture cuda;
  for (const NamedCase& c : all_cases()) EXPECT_EQ(c.run(cuda.harness, 9).out, c.run(cuda.harness, 9).out) << c.name;
}

// Shapes at which cuDNN's kernels use several tiles, and at which the backward is cut into several calls.
const std::vector<AttentionCase> kLargeAttentionCases = {
    {DType::bf16, {512, 512}, 28, 4, 128},
    {DType::bf16, {1000}, 8, 8, 64},
    {DType::bf16, {1024, 1024}, 8, 2, 128, 300},
    {DType::bf16, {300, 700, 24, 1, 515}, 28, 4, 128},
    {DType::bf16, {900, 37, 600}, 8, 2, 64, 128},
    {DType::bf16, {256, 256}, 4, 1, 256},
    {DType::bf16, {512, 512}, 8, 4, 256, 128, 0.0770f},  // Gemma's heads, windows and scale
    {DType::bf16, {300, 700, 24}, 8, 4, 256, 0, 0.0770f},
    {DType::bf16, {100, 200}, 6, 3, 40},
    {DType::bf16, std::vector<int32_t>(12, 2048), 16, 2, 32},     // uniform documents, four per call
    {DType::bf16, {2000, 1500, 1800, 700, 1999, 64}, 16, 2, 32},  // ragged documents, two per call
    {DType::bf16, {8192}, 8, 4, 32},                              // key heads, two per call
    {DType::bf16, {6000, 2100}, 8, 4, 32, 700},                   // the same, ragged
    {DType::bf16, {20000}, 4, 2, 32},                             // backward in tiles, the last one shorter
    {DType::bf16, {32768}, 1, 1, 32},                             // backward in equal tiles
    {DType::bf16, {17000, 300}, 2, 1, 32},                        // backward in tiles of a padded document
    {DType::bf16, {17000}, 2, 2, 32, 0, 0, true},                 // with sinks
    {DType::bf16, {20000}, 8, 2, 64, 700},                        // pieces of a window, the last with fewer new queries
    {DType::bf16, {17000, 300}, 4, 1, 32, 129},                   // the same, of a padded document
    {DType::bf16, {33000}, 4, 2, 32, 128, 0, true},               // with sinks, one token short of an overlap
    {DType::bf16, {30000}, 2, 1, 32, 8192},                       // the longest window that is cut
    {DType::f32, {500, 37, 800}, 6, 2, 128, 200},
    {DType::f32, {700}, 4, 2, 256},
};

// Documents with random lengths between 1 and `longest`, `tokens` in total.
std::vector<int32_t> random_documents(uint64_t seed, int32_t tokens, int32_t longest) {
  std::vector<int32_t> documents;
  for (uint64_t i = 0; tokens > 0; ++i) {
    const auto drawn = static_cast<int32_t>(random_below(seed, 23, i, static_cast<uint64_t>(longest)));
    documents.push_back(std::min(1 + drawn, tokens));
    tokens -= documents.back();
  }
  return documents;
}

std::vector<int32_t> long_among_short() {
  std::vector<int32_t> documents(40, 3);
  documents.insert(documents.begin() + 11, 1300);
  return documents;
}

// Unequal documents, in calls of similar lengths.
const std::vector<AttentionCase> kRaggedAttentionCases = {
    {DType::bf16, {64, 65, 63, 1, 128, 129, 127}, 4, 4, 64},              // the edges of short buckets
    {DType::bf16, {512, 513, 511, 640, 641, 1}, 4, 2, 64},                // the edges of long buckets
    {DType::bf16, {1, 1, 1, 200, 1, 1}, 4, 1, 128},                       // documents of one token
    {DType::bf16, long_among_short(), 4, 2, 128},                         // one long, many of three tokens
    {DType::bf16, std::vector<int32_t>{40, 30, 35, 50, 60}, 28, 4, 128},  // one call, padded to its size
    {DType::bf16, random_documents(1, 4096, 60), 4, 2, 64},               // more documents than a call takes
    {DType::bf16, random_documents(2, 2048, 700), 8, 2, 128},
    {DType::bf16, random_documents(3, 1536, 1500), 6, 6, 80},
    {DType::bf16, random_documents(4, 2048, 700), 8, 2, 128, 100},  // windows
    {DType::bf16, random_documents(5, 2048, 400), 4, 1, 64, 33},
    {DType::bf16, random_documents(6, 1024, 12), 4, 2, 64},  // too short for calls
    {DType::bf16, {300, 17000, 100, 2000}, 2, 1, 64},        // one longer than a tile: a padded call and a ragged one
};

TEST(CudaOps, AttentionOverUnequalDocumentsAgreesWithTheCpu) {
  CudaFixture cuda;
  CpuFixture cpu({});
  for (const AttentionCase& c : kRaggedAttentionCases) {
    SCOPED_TRACE(name_of(c));
    ASSERT_NO_THROW(expect_close(run(cuda.harness, c, 3), run(cpu.harness, c, 3), c.dtype, name_of(c)));
  }
}

TEST(CudaOps, AttentionOverUnequalDocumentsGivesTheSameBitsAgain) {
  CudaFixture cuda;
  for (const AttentionCase& c : kRaggedAttentionCases)
    EXPECT_EQ(run(cuda.harness, c, 5).out, run(cuda.harness, c, 5).out) << name_of(c);
}

// NaNs throughout the second document change no bit of the others.
void expect_second_document_apart(CudaFixture& cuda, const AttentionCase& c) {
  const int64_t tokens = tokens_of(c), begin = c.documents[0], end = begin + c.documents[1];
  const OpRun before = run(cuda.harness, c, 4);
  Values given = before.in;
  for (auto& [name, values] : given) {
    const int64_t cols = static_cast<int64_t>(values.size()) / tokens;
    std::fill(values.begin() + begin * cols, values.begin() + end * cols, std::nan(""));
  }
  const OpRun after = run(cuda.harness, c, 4, given);
  for (const auto& [name, values] : before.out) {
    const int64_t cols = static_cast<int64_t>(values.size()) / tokens;
    const Vector& now = after.out.at(name);
    EXPECT_TRUE(std::equal(values.begin(), values.begin() + begin * cols, now.begin())) << name;
    EXPECT_TRUE(std::equal(values.begin() + end * cols, values.end(), now.begin() + end * cols)) << name;
    EXPECT_TRUE(std::isnan(now[static_cast<size_t>(begin * cols)])) << name;
  }
}

// Documents that share a call: with 128 tokens and with 256.
TEST(CudaOps, ADocumentNeverSeesAnotherOfItsCall) {
  CudaFixture cuda;
  for (const std::vector<int32_t>& documents : {std::vector<int32_t>{100, 120, 80, 110}, {150, 180, 140, 190}})
    expect_second_document_apart(cuda, {DType::bf16, documents, 4, 2, 64});
}

TEST(CudaOps, ReservedScratchHoldsEveryTilingByDocuments) {
  CudaFixture cuda;
  constexpr int32_t kTokens = 4096, kLongest = 2048;
  AttentionCase c{DType::bf16, {}, 8, 2, 64};
  AttentionShape shape = shape_of(c);
  shape.tokens = kTokens;
  cuda.ops->reserve({.dtype = DType::bf16,
                     .tokens = kTokens,
                     .attention = {shape},
                     .hidden = c.heads * c.head_dim,
                     .ff = c.heads * c.head_dim,
                     .max_documents = kTokens,
                     .longest_document = kLongest});
  const auto scratch = [&] { return cuda.device->ledger().by_tag().at("ops scratch"); };
  const int64_t reserved = scratch();
  EXPECT_GT(reserved, 0);
  const auto check = [&](std::vector<int32_t> documents) {
    c.documents = std::move(documents);
    run(cuda.harness, c, 3);
    EXPECT_EQ(scratch(), reserved) << name_of(c);
  };
  for (const int32_t longest : {100, 300, 1000, kLongest})
    check(random_documents(static_cast<uint64_t>(longest), kTokens, longest));
  for (const int32_t size : {64, 512, 2048}) check(std::vector<int32_t>(kTokens / size, size));
  check({2048, 1025, 1023});
}

TEST(CudaOps, AttentionOfRealSizesAgreesWithTheCpu) {
  CudaFixture cuda;
  CpuFixture cpu({});
  for (const AttentionCase& c : kLargeAttentionCases) {
    SCOPED_TRACE(name_of(c));
    ASSERT_NO_THROW(expect_close(run(cuda.harness, c, 3), run(cpu.harness, c, 3), c.dtype, name_of(c)));
  }
}

TEST(CudaOps, AttentionOfRealSizesGivesTheSameBitsAgain) {
  CudaFixture cuda;
  for (const AttentionCase& c : kLargeAttentionCases)
    EXPECT_EQ(run(cuda.harness, c, 5).out, run(cuda.harness, c, 5).out) << name_of(c);
}

// The tiles use cuDNN: our own kernel needs hardly any scratch.
TEST(CudaOps, ALongDocumentsBackwardGoesThroughTiles) {
  CudaFixture cuda;
  const AttentionCase c{DType::bf16, {20000}, 4, 2, 32};
  run(cuda.harness, c, 3);
  const int64_t scratch = cuda.device->ledger().by_tag().at("ops scratch");
  EXPECT_GE(scratch, 2 * 10112 * 10112 * int64_t{2}) << "the pairs of two heads";
  EXPECT_LT(scratch, 2 * 20000 * 20000 * int64_t{2});
}

TEST(CudaOps, ALongDocumentsBackwardInAWindowGoesThroughPieces) {
  CudaFixture cuda;
  run(cuda.harness, AttentionCase{DType::bf16, {40000}, 4, 2, 32, 128}, 3);
  const int64_t scratch = cuda.device->ledger().by_tag().at("ops scratch");
  EXPECT_GE(scratch, 4 * 4096 * 4096 * int64_t{2}) << "the pairs of all heads";
  EXPECT_LT(scratch, 512 * kMiB);
}

TEST(CudaOps, ADocumentNeverSeesAnotherInFp32) {
  CudaFixture cuda;
  expect_second_document_apart(cuda, {DType::f32, {30, 90, 25}, 4, 1, 12});
}

TEST(CudaOps, ScaledAndAddedProductsOfExpertsMatchFloat64) {
  CudaFixture cuda;
  check_scaled_products(cuda.harness);
}

TEST(CudaOps, BitsDoNotDependOnHowManyExpertsAreComputedAtATime) {
  CudaFixture cuda;
  check_groups_of_experts(cuda.harness);
}

TEST(CudaOps, AdamWGivesTheBitsOfTheCpu) {
  CudaFixture cuda;
  check_adamw_update(cuda.harness);
}

TEST(CudaOps, AdamWOfStateThatIsNotExactEqualsTheReference) {
  CudaFixture cuda;
  check_adamw_coded(cuda.harness);
}

TEST(CudaOps, AdamWMarksAMomentThatIsNotFinite) {
  CudaFixture cuda;
  check_adamw_marks(cuda.harness);
}

TEST(CudaOps, AdamWArrivesAtTheCommittedHash) {
  CudaFixture cuda;
  for (const bool split : {true, false}) {
    const auto update = [&](const AdamW& args) {
      const auto list = [&](const auto* plane) {
        return plane ? std::vector(plane, plane + args.count) : decltype(std::vector(plane, plane)){};
      };
      float *const m = static_cast<float*>(args.m), *const v = static_cast<float*>(args.v);
      AdamWPlanes planes{list(m), list(v), list(args.master), list(args.weight), list(args.low)};
      EXPECT_TRUE(update_on_device(cuda.harness, planes, args.scalars, list(args.grad_f32), args.scalars.clip, {}, 1));
      std::copy(planes.m.begin(), planes.m.end(), m);
      std::copy(planes.v.begin(), planes.v.end(), v);
      std::copy(planes.master.begin(), planes.master.end(), args.master);
      std::copy(planes.weight.begin(), planes.weight.end(), args.weight);
      std::copy(planes.low.begin(), planes.low.end(), args.low);
    };
    EXPECT_EQ(adamw_hash(false, split, update), kAdamWHash) << "split master " << split;
  }
}

TEST(CudaOps, ClipFactorIsTheHosts) {
  CudaFixture cuda;
  check_clip_factor(cuda.harness);
}

TEST(CudaOps, EmbeddingReachesRowsBeyondTwoToThe31Elements) {
  CudaFixture cuda;
  Harness& h = cuda.harness;
  constexpr int64_t kRows = (int64_t{1} << 20) + 8, kHidden = 2048, kTokens = 5;
  static_assert(kRows * kHidden > int64_t{1} << 31);
  const Buffer table_d = h.device.allocate(kRows * kHidden * sizeof(bf16), "test");
  const Buffer grad_d = h.device.allocate(kRows * kHidden * sizeof(float), "test");
  h.stream.zero(grad_d.data(), grad_d.bytes());
  const int32_t last = kRows - 1;
  const std::vector<int32_t> index{last, 0, last - 1, last, 7};
  const auto row_values = [](int64_t row) {
    std::vector<bf16> values(kHidden);
    for (int64_t i = 0; i < kHidden; ++i)
      values[static_cast<size_t>(i)] = to_bf16(static_cast<float>(row % 251 + i % 13));
    return values;
  };
  for (const int32_t row : {last, 0, last - 1, 7}) {
    const std::vector<bf16> values = row_values(row);
    h.stream.copy(table_d.data() + int64_t{row} * kHidden * 2, values.data(), kHidden * sizeof(bf16));
    h.stream.synchronize();
  }
  const Buffer index_d = h.upload(index), out_d = h.device.allocate(kTokens * kHidden * sizeof(bf16), "test");
  const Segments s = segments_of(index);
  const Buffer order = h.upload(s.order), begin = h.upload(s.begin), row = h.upload(s.row);
  const View out = matrix(out_d.data(), DType::bf16, kTokens, kHidden);
  h.ops.embedding_forward(
      h.stream,
      {.table = matrix(table_d.data(), DType::bf16, kRows, kHidden), .index = pointer<int32_t>(index_d), .out = out});
  h.ops.embedding_backward(h.stream, {.grad_out = out,
                                      .order = pointer<int32_t>(order),
                                      .begin = pointer<int32_t>(begin),
                                      .row = pointer<int32_t>(row),
                                      .segments = static_cast<int64_t>(s.row.size()),
                                      .grad = matrix(grad_d.data(), DType::f32, kRows, kHidden)});
  const std::vector<bf16> got = h.download_as<bf16>(out_d, kTokens * kHidden);
  std::vector<float> grad(kHidden);
  h.stream.copy(grad.data(), grad_d.data() + int64_t{last} * kHidden * 4, kHidden * sizeof(float));
  h.stream.synchronize();
  for (int64_t t = 0; t < kTokens; ++t) {
    const std::vector<bf16> wanted = row_values(index[static_cast<size_t>(t)]);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), got.begin() + t * kHidden)) << t;
  }
  for (int64_t i = 0; i < kHidden; ++i)
    ASSERT_EQ(grad[static_cast<size_t>(i)], 2 * to_float(got[static_cast<size_t>(i)]));
}

// Logits with more than 2^31 elements: the last row is right.
TEST(CudaOps, CrossEntropyReachesRowsBeyondTwoToThe31Elements) {
  CudaFixture cuda;
  Harness& h = cuda.harness;
  constexpr int64_t kVocabulary = 152064, kRows = (int64_t{1} << 31) / kVocabulary + 2;
  const Buffer logits = h.device.allocate(kRows * kVocabulary * sizeof(bf16), "test");
  h.stream.zero(logits.data(), logits.bytes());
  std::vector<int32_t> labels(kRows, kIgnoreLabel);
  labels.back() = kVocabulary - 1;
  const Buffer labels_d = h.upload(labels);
  const Buffer loss = h.device.allocate(kRows * sizeof(float), "test"),
               correct = h.device.allocate(kRows * sizeof(int32_t), "test");
  h.ops.cross_entropy(h.stream, {.logits = matrix(logits.data(), DType::bf16, kRows, kVocabulary),
                                 .labels = pointer<int32_t>(labels_d),
                                 .scale = 1.0f,
                                 .loss = pointer<float>(loss),
                                 .correct = pointer<int32_t>(correct),
                                 .backward = true});
  EXPECT_NEAR(h.download_as<float>(loss, kRows).back(), std::log(static_cast<double>(kVocabulary)), 1e-4);
  EXPECT_EQ(h.download_as<int32_t>(correct, kRows).back(), 0);
  std::vector<bf16> last(2);
  h.stream.copy(last.data(), logits.data() + (kRows * kVocabulary - 2) * 2, 4);
  h.stream.synchronize();
  EXPECT_NEAR(to_float(last[0]), 1.0 / kVocabulary, 1e-7);
  EXPECT_NEAR(to_float(last[1]), -1.0, 1e-2);
}

}  // namespace
}  // namespace megatrain::testing
