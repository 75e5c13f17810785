// CUDA's ops of a gated delta net at real sizes, over segments and in generation. ops_cuda_test.cc runs their cases.
#include <gtest/gtest.h>

#include <cstdio>

#include "megatrain/ops/delta_segments.h"
#include "tests/gpu/cuda_fixture.h"
#include "tests/ops/cpu_fixture.h"
#include "tests/ops/delta_cached.h"

namespace megatrain::testing {
namespace {

// fp32: 1e-5 of the tensor's largest magnitude. bf16: two units in the last place of it.
void expect_near(const OpRun& cuda, const OpRun& cpu, DType dtype, const std::string& name) {
  ASSERT_EQ(cuda.in, cpu.in) << name;
  for (const auto& [tensor, wanted] : cpu.out) {
    double scale = 0;
    for (const double value : wanted) scale = std::max(scale, std::fabs(value));
    const double allowed = dtype == DType::f32 ? 1e-5 * scale : 2 * std::exp2(std::floor(std::log2(scale)) - 7);
    EXPECT_LE(largest_difference(cuda.out.at(tensor), wanted), allowed) << name << ": " << tensor;
  }
}

TEST(CudaDeltaNet, AlignedAndWideShapesAgreeWithTheCpu) {
  CudaFixture cuda;
  CpuFixture cpu({});
  const auto check = [&](const auto& c) {
    SCOPED_TRACE(name_of(c));
    ASSERT_NO_THROW(expect_near(run(cuda.harness, c, 11), run(cpu.harness, c, 11), c.dtype, name_of(c)));
  };
  for (const DType dtype : {DType::bf16, DType::f32}) {
    check(ShortConvCase{dtype, {700, 3, 1, 320}, 1024, 4, 16, true});
    check(DeltaGatesCase{dtype, dtype, 5000, 48, 16, true});
    check(GatedNormCase{dtype, 700, 32, 128, 128, true});
    check(GatedNormCase{dtype, 300, 2, 512});
    check(DeltaRuleCase{dtype, {200, 64, 1, 130}, 2, 6, 256, 256, 0.05f, 8});
    check(DeltaRuleCase{dtype, {129}, 3, 3, 240, 112, 0.05f});
    check(DeltaRuleCase{dtype, {65, 300}, 2, 4, 128, 256, 0.02f});
  }
}

// The heads of Qwen3.5-9B and 27B, decays as after initialisation and stronger.
TEST(CudaDeltaNet, RealSizesAgreeWithTheCpu) {
  CudaFixture cuda;
  CpuFixture cpu({});
  for (const DeltaRuleCase& c : {DeltaRuleCase{DType::bf16, {512, 512}, 16, 32, 128, 128, 0.02f},
                                 DeltaRuleCase{DType::bf16, {300, 700, 24, 1, 515}, 16, 48, 128, 128, 0.3f},
                                 DeltaRuleCase{DType::f32, {500, 37, 300}, 16, 32, 128, 128, 0.02f}}) {
    SCOPED_TRACE(name_of(c));
    ASSERT_NO_THROW(expect_near(run(cuda.harness, c, 3), run(cpu.harness, c, 3), c.dtype, name_of(c)));
    EXPECT_EQ(run(cuda.harness, c, 5).out, run(cuda.harness, c, 5).out) << name_of(c);
  }
}

// Longer than two segments, with short documents around it.
TEST(CudaDeltaNet, DocumentsLongerThanASegmentAgreeWithTheCpu) {
  CudaFixture cuda;
  CpuFixture cpu({});
  const std::vector<int32_t> documents = {100, 64 * 150 + 7, 3};
  for (const DeltaRuleCase& c : {DeltaRuleCase{DType::bf16, documents, 1, 2, 64, 64, 0.01f},
                                 DeltaRuleCase{DType::f32, documents, 1, 2, 64, 64, 0.01f},
                                 DeltaRuleCase{DType::bf16, documents, 1, 1, 128, 128, 0.01f}}) {
    ASSERT_GT(c.documents[1], 2 * kDeltaChunk * delta_segment_chunks(shape_of(c)));
    ASSERT_NO_THROW(expect_near(run(cuda.harness, c, 3), run(cpu.harness, c, 3), c.dtype, name_of(c)));
  }
}

TEST(CudaDeltaNet, APackedDocumentHasTheBitsThatItHasAlone) {
  CudaFixture cuda;
  check_packed_delta_rule(cuda.harness);
}

TEST(CudaDeltaNet, GenerationGivesWhatTrainingGivesHoweverPromptsAreCut) {
  CudaFixture cuda;
  check_cached(cuda.harness, 2e-5);
}

TEST(CudaDeltaNet, ReservedScratchHoldsEveryCall) {
  CudaFixture cuda;
  const std::vector<std::vector<int32_t>> packings = {
      {4096}, {2048, 2048}, std::vector<int32_t>(64, 64), std::vector<int32_t>(4096, 1)};
  const DeltaRuleCase c{DType::bf16, packings[0], 2, 8, 128, 128, 0.02f};
  cuda.ops->reserve({.dtype = c.dtype,
                     .attention = {{.tokens = 4096, .heads = 2, .kv_heads = 2, .head_dim = 64}},
                     .delta_rule = shape_of(c),
                     .hidden = 128,
                     .ff = 128,
                     .max_documents = 4096,
                     .longest_document = 4096});
  const auto scratch = [&] { return cuda.device->ledger().by_tag().at("ops scratch"); };
  const int64_t reserved = scratch();
  for (const std::vector<int32_t>& documents : packings) {
    DeltaRuleCase packed = c;
    packed.documents = documents;
    run(cuda.harness, packed, 3);
    run(cuda.harness, ShortConvCase{c.dtype, documents, 2 * 2 * 128 + 8 * 128}, 3);
    run(cuda.harness, DeltaGatesCase{c.dtype, c.dtype, 4096, 8}, 3);
    run(cuda.harness, GatedNormCase{c.dtype, 4096, 8, 128}, 3);
    EXPECT_EQ(scratch(), reserved);
  }
}

// A layer of Qwen3.5-9B takes about 130 ms for 65,536 tokens; its delta net may take a fifth of that. The bound is
// wide, because other work may share the GPU; the printed times are what to look at.
TEST(CudaDeltaNet, ALayersOpsTakeASmallPartOfTheLayer) {
  CudaFixture cuda;
  Harness timed(*cuda.device, *cuda.ops, *cuda.stream, 5);
  const std::vector<int32_t> documents(16, 1024);
  double forward = 0, backward = 0;
  const auto time = [&](const auto& c) {
    run(cuda.harness, c, 3);
    const OpRun r = run(timed, c, 3);
    std::printf("%s: forward %.2f ms, backward %.2f ms\n", name_of(c).substr(0, 30).c_str(),
                1e3 * r.seconds.at("forward"), 1e3 * r.seconds.at("backward"));
    forward += r.seconds.at("forward");
    backward += r.seconds.at("backward");
  };
  time(ShortConvCase{DType::bf16, documents, 8192});
  time(DeltaGatesCase{DType::bf16, DType::bf16, 16384, 32});
  time(DeltaRuleCase{DType::bf16, documents, 16, 32, 128, 128, 0.02f});
  time(GatedNormCase{DType::bf16, 16384, 32, 128});
  const double of_layer = 4 * (2 * forward + backward);
  std::printf("65,536 tokens, forward twice and backward: %.1f ms\n", 1e3 * of_layer);
  EXPECT_LT(of_layer, 0.130);
}

}  // namespace
}  // namespace megatrain::testing
