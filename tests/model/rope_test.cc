// Rotary frequencies compared with numbers computed in Python from the papers' formulas. transformers' own, in fp32,
// agree with them to 3e-7.
#include <gtest/gtest.h>

#include <cmath>

#include <fmt/format.h>

#include "megatrain/io/json.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/layers/rope_table.h"

namespace megatrain {

namespace {

using nlohmann::json;

ModelConfig with_rope(int64_t head_dim, const json& rope) {
  return parse_model_config({{"architectures", {"LlamaForCausalLM"}},
                             {"vocab_size", 8},
                             {"hidden_size", 2 * head_dim},
                             {"intermediate_size", 8},
                             {"num_hidden_layers", 1},
                             {"num_attention_heads", 2},
                             {"max_position_embeddings", 131072},
                             {"rope_parameters", rope}},
                            "config.json");
}

void expect_frequencies(const ModelConfig& config, const std::vector<double>& expected) {
  const std::vector<double> found = rope_frequencies(config.rope, config.head_dim);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12 * expected[i]) << "pair " << i;
}

const json kYarn = {
    {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}, {"rope_theta", 1e6}};

}  // namespace

TEST(Rope, DefaultFallsGeometrically) {
  expect_frequencies(with_rope(8, {{"rope_theta", 10000.0}}), {1, 0.1, 0.01, 0.001});
}

TEST(Rope, LinearDividesEveryFrequency) {
  expect_frequencies(with_rope(8, {{"rope_type", "linear"}, {"factor", 2.5}, {"rope_theta", 10000.0}}),
                     {0.4, 0.04, 0.004, 0.0004});
}

TEST(Rope, Llama3KeepsFastPairsScalesSlowOnesAndBlendsBetween) {
  const json rope = {{"rope_type", "llama3"},
                     {"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 8192},
                     {"rope_theta", 500000.0}};
  expect_frequencies(with_rope(16, rope),
                     {1.0, 0.19392274474868576, 0.03760603093086393, 0.007292664737217109, 0.0005248461609929547,
                      3.428102195952591e-05, 6.647869871181235e-06, 1.2891731721515574e-06});
}

TEST(Rope, YarnRampsBetweenTheTurningPairs) {
  const ModelConfig config = with_rope(16, kYarn);
  expect_frequencies(config, {1.0, 0.1778279410038923, 0.03162277660168379, 0.004217559938927619, 0.0005,
                              4.445698525097307e-05, 7.905694150420949e-06, 1.4058533129758728e-06});
  EXPECT_DOUBLE_EQ(config.rope.attention_factor, 1.138629436111989);
}

TEST(Rope, YarnWithoutTruncationAndWithOtherTurns) {
  json rope = kYarn;
  rope.update({{"truncate", false}, {"beta_fast", 16.0}, {"beta_slow", 2.0}});
  expect_frequencies(with_rope(16, rope),
                     {1.0, 0.1778279410038923, 0.03162277660168379, 0.005623413251903491, 0.0005956798964663989,
                      4.445698525097307e-05, 7.905694150420949e-06, 1.4058533129758728e-06});
}

TEST(Rope, YarnsAttentionFactorFollowsItsFields) {
  json scaled = kYarn, given = kYarn;
  scaled.update({{"mscale", 1.0}, {"mscale_all_dim", 0.5}});
  given["attention_factor"] = 1.25;
  EXPECT_DOUBLE_EQ(with_rope(16, scaled).rope.attention_factor, 1.0648216253695715);
  EXPECT_DOUBLE_EQ(with_rope(16, given).rope.attention_factor, 1.25);
}

// Two of a head's three pairs rotate.
RopeConfig longrope() {
  RopeConfig rope;
  rope.scaling = RopeScaling::longrope;
  rope.theta = 100;
  rope.original_max_position = 8;
  rope.attention_factor = 1.25;
  rope.rotary_dim = 4;
  rope.short_factor = {1, 2};
  rope.long_factor = {4, 8};
  return rope;
}

TEST(Rope, LongropeDividesByTheFactorsOfTheDocumentsLength) {
  EXPECT_EQ(rope_frequencies(longrope(), 6, false), (std::vector<double>{1, 0.05}));
  EXPECT_EQ(rope_frequencies(longrope(), 6, true), (std::vector<double>{0.25, 0.0125}));
}

TEST(Rope, AnglesOfLongDocumentsLieBehindTheOthersWhereOneFits) {
  const RopeConfig rope = longrope();
  EXPECT_EQ(rope_rows(rope, 8), 8);
  EXPECT_EQ(make_rope_table(rope, 6, 8).size(), 2u * 8 * 2);
  EXPECT_EQ(rope_rows(rope, 9), 18);
  const std::vector<float> table = make_rope_table(rope, 6, 9);
  ASSERT_EQ(table.size(), 2u * 18 * 2);
  EXPECT_EQ(table[2 * 5 + 1], static_cast<float>(1.25 * std::cos(5 * 0.05)));
  EXPECT_EQ(table[2 * (9 + 5) + 1], static_cast<float>(1.25 * std::cos(5 * 0.0125)));
  EXPECT_EQ(table[2 * (18 + 5)], static_cast<float>(1.25 * std::sin(5 * 1.0)));
  EXPECT_EQ(table[2 * (18 + 9 + 5)], static_cast<float>(1.25 * std::sin(5 * 0.25)));
}

TEST(Rope, EachDocumentTurnsByItsOwnLength) {
  const auto runs = [](std::vector<int32_t> begin, int64_t longest, bool uniform, int64_t above) {
    std::string text;
    const Documents documents{.begin = nullptr,
                              .host_begin = begin.data(),
                              .count = std::ssize(begin) - 1,
                              .longest = longest,
                              .uniform = uniform};
    for (const AngleRun& run : angle_runs(documents, begin.back(), above))
      text += fmt::format("{}+{}{} ", run.begin, run.count, run.in_long ? " long" : "");
    return text;
  };
  EXPECT_EQ(runs({0, 3, 12, 22, 25, 33}, 10, false, 8), "0+3 3+19 long 22+11 ");
  EXPECT_EQ(runs({0, 3, 12, 22}, 10, false, 10), "0+22 ");
  EXPECT_EQ(runs({0, 3, 12, 22}, 10, false, 0), "0+22 ") << "no model but longrope's tells documents apart";
  EXPECT_EQ(runs({0, 9, 18}, 9, true, 8), "0+18 long ");
  EXPECT_EQ(runs({0, 8, 16}, 8, true, 8), "0+16 ");
}

TEST(Rope, YarnsFactorFollowsFromTheContexts) {
  json rope = kYarn;
  rope["factor"] = nullptr;
  EXPECT_DOUBLE_EQ(with_rope(16, rope).rope.factor, 4.0);
}

}  // namespace megatrain
