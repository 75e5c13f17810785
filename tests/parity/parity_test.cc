// Parity with transformers on the CPU, over every committed golden.
#include "tests/parity/parity.h"

namespace megatrain::parity {

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, Fp32LossGradientsAndTenClippedStepsMatchTransformers) {
  expect_fp32_parity(GetParam(), {.micro_batch = 2});
}

TEST_P(Golden, Fp32MatchesWithTheMlpInChunksAndTheWholeStepInOneMicroBatch) {
  const int64_t batch = read_json_file(golden_path(GetParam()) + "/expected.json").at("batch").get<int64_t>();
  expect_fp32_parity(GetParam(), {.micro_batch = batch, .mlp_chunk = 24});
}

TEST_P(Golden, Bf16LossAndGradientDirectionsMatchTransformers) { expect_bf16_parity(GetParam(), {.micro_batch = 2}); }

INSTANTIATE_TEST_SUITE_P(Models, Golden, ::testing::ValuesIn(golden_names()),
                         [](const auto& info) { return info.param; });

// Two steps of 8192 tokens: one document; or documents of up to 5000 tokens, with a window of 1000 in one layer.
class LongGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(LongGolden, Fp32LossGradientsAndClippedStepsMatchTransformers) {
  expect_fp32_parity(GetParam(), {.micro_batch = 1});
}

TEST_P(LongGolden, Fp32MatchesWithBlocksOverRangesOfTokens) {
  expect_fp32_parity(GetParam(), {.micro_batch = 1, .mlp_chunk = 3000});
}

TEST_P(LongGolden, Bf16LossAndGradientDirectionsMatchTransformers) {
  expect_bf16_parity(GetParam(), {.micro_batch = 1});
}

INSTANTIATE_TEST_SUITE_P(Models, LongGolden, ::testing::ValuesIn(golden_names(true)),
                         [](const auto& info) { return info.param; });

}  // namespace megatrain::parity
