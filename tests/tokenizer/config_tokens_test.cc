// Tokens from the files beside tokenizer.json. The expected values are those of transformers 5.22 for the same files.
#include "megatrain/tokenizer/config_tokens.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "megatrain/chat/model_text.h"
#include "tests/support/byte_model.h"
#include "tests/support/said.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

class ConfigTokensTest : public ::testing::Test {
 protected:
  ConfigTokensTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                (std::string("config_tokens_") + ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~ConfigTokensTest() override { std::filesystem::remove_all(folder_); }

  // The byte model's tokenizer.json with other files beside it.
  ModelText model(const Json& config, const std::map<std::string, Json>& more = {}) const {
    std::filesystem::remove_all(folder_);
    write_byte_model(folder_.string(), 32, 1);
    Json all = {{"eos_token", "<|im_end|>"}, {"pad_token", "<|endoftext|>"}};
    if (config.is_object()) all.update(config);
    std::ofstream(folder_ / "tokenizer_config.json") << all.dump();
    for (const auto& [name, json] : more) std::ofstream(folder_ / name) << json.dump();
    return ModelText::load(folder_.string());
  }
  static Ids ids(const ModelText& text, const char* input) { return text.tokenizer.encode(input, false); }
  std::string refusal(const Json& config, const std::map<std::string, Json>& more = {}) const {
    return refused_with(ExitCode::bad_input, [&] { model(config, more); });
  }

  const Json full_ = {{"256", decoder_token("<|endoftext|>")},
                      {"257", decoder_token("<|im_start|>")},
                      {"258", decoder_token("<|im_end|>")}};
  const Ids plain_x_ = {'a', '<', '|', 'x', '|', '>', ' ', 'b'};
  std::filesystem::path folder_;
};

TEST_F(ConfigTokensTest, ThoseThatOnlyAddedTokensDecoderHasAreTokens) {
  Json decoder = full_;
  decoder["259"] = decoder_token("<|x|>");
  decoder["260"] = decoder_token("<tool>", {{"special", false}, {"normalized", true}});
  const ModelText text = model({{"added_tokens_decoder", decoder}});
  EXPECT_EQ(ids(text, "a<|x|> b"), (Ids{'a', 259, ' ', 'b'}));
  EXPECT_EQ(ids(text, "<tool> <|im_end|> z"), (Ids{260, ' ', 258, ' ', 'z'}));
  EXPECT_EQ(text.tokenizer.vocab_size(), 261);
  EXPECT_TRUE(text.tokenizer.is_special(259));
  EXPECT_FALSE(text.tokenizer.is_special(260));
  EXPECT_EQ(text.tokenizer.decode(Ids{'a', 259, 260}, true), "a<tool>");
}

TEST_F(ConfigTokensTest, AFileThatAddsNothingLeavesTheTokenizersIdentity) {
  const std::string plain = model({}).tokenizer_identity;
  EXPECT_EQ(model({{"added_tokens_decoder", full_}}).tokenizer_identity, plain);
  Json decoder = full_;
  decoder["259"] = decoder_token("<|x|>");
  const std::string added = model({{"added_tokens_decoder", decoder}}).tokenizer_identity;
  EXPECT_NE(added, plain);
  decoder["259"]["lstrip"] = true;
  EXPECT_NE(model({{"added_tokens_decoder", decoder}}).tokenizer_identity, added);
}

TEST_F(ConfigTokensTest, IdsFollowTheOrderOfTheIndicesWhateverTheseAre) {
  Json decoder = full_;
  decoder["262"] = decoder_token("<|x|>");
  decoder["261"] = decoder_token("<tool>");
  ::testing::internal::CaptureStderr();
  const ModelText text = model({{"added_tokens_decoder", decoder}});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("added_tokens_decoder gives \"<tool>\" the id 261; it gets 259, as in transformers"),
            std::string::npos)
      << said;
  EXPECT_EQ(ids(text, "<tool><|x|>"), (Ids{259, 260}));
}

TEST_F(ConfigTokensTest, ItsFlagsGoBeforeThoseOfTokenizerJson) {
  Json decoder = full_;
  decoder["258"] = decoder_token("<|im_end|>", {{"lstrip", true}, {"special", false}});
  const ModelText text = model({{"added_tokens_decoder", decoder}});
  EXPECT_EQ(ids(text, "a  <|im_end|> z"), (Ids{'a', 258, ' ', 'z'}));
  EXPECT_TRUE(text.tokenizer.is_special(258));  // it is the end token
}

TEST_F(ConfigTokensTest, FlagsThatAreLeftOutHaveTransformersDefaults) {
  const ModelText text = model(
      {{"added_tokens_decoder", {{"259", {{"content", "<|x|>"}}}, {"260", {{"content", "<t>"}, {"special", true}}}}}});
  EXPECT_EQ(ids(text, "a<|x|><t>"), (Ids{'a', 259, 260}));
  EXPECT_FALSE(text.tokenizer.is_special(259));
  EXPECT_TRUE(text.tokenizer.is_special(260));
}

TEST_F(ConfigTokensTest, TheOlderFilesCountWithoutADecoderOnly) {
  const std::map<std::string, Json> legacy = {{"added_tokens.json", {{"<|x|>", 259}, {"<tool>", 260}}}};
  EXPECT_EQ(ids(model({}, legacy), "a<|x|> b"), (Ids{'a', 259, ' ', 'b'}));
  EXPECT_EQ(ids(model({{"added_tokens_decoder", full_}}, legacy), "a<|x|> b"), plain_x_);
  EXPECT_EQ(ids(model({}, {{"added_tokens.json", {{"<|x|>", 258}}}}), "a<|x|> b"), plain_x_);  // the id is in use
  const std::map<std::string, Json> map = {
      {"special_tokens_map.json", {{"additional_special_tokens", {"<|x|>"}}, {"pad_token", "[PAD]"}}}};
  const ModelText mapped = model({}, map);
  EXPECT_EQ(ids(mapped, "a<|x|> [PAD]"), (Ids{'a', 260, ' ', 259}));
  EXPECT_EQ(mapped.padding, 259);
  EXPECT_EQ(ids(model({{"added_tokens_decoder", full_}}, map), "a<|x|> b"), plain_x_);
}

TEST_F(ConfigTokensTest, NamedAndAdditionalTokensAreAddedAndAnUnknownEndIsRefused) {
  EXPECT_EQ(ids(model({{"additional_special_tokens", {"<|x|>"}}, {"added_tokens_decoder", full_}}), "a<|x|> b"),
            (Ids{'a', 259, ' ', 'b'}));
  EXPECT_EQ(ids(model({{"extra_special_tokens", {{"image_token", "<|x|>"}}}}), "a<|x|> b"), (Ids{'a', 259, ' ', 'b'}));
  EXPECT_EQ(ids(model({{"pad_token", {{"content", "[PAD]"}, {"lstrip", true}, {"normalized", true}}}}), "q [PAD] "),
            (Ids{'q', 259, ' '}));
  EXPECT_TRUE(model({{"unk_token", "q"}}).tokenizer.is_special('q'));  // in the vocabulary
  EXPECT_NE(refusal({{"eos_token", "<|x|>"}}).find("\"eos_token\" is \"<|x|>\""), std::string::npos);
  EXPECT_EQ(model({{"eos_token", "<|x|>"}, {"added_tokens_decoder", {{"259", decoder_token("<|x|>")}}}}).eos, 259);
}

TEST_F(ConfigTokensTest, WhatIsNoTokenIsRefused) {
  EXPECT_NE(refusal({{"added_tokens_decoder", {{"259", "<|x|>"}}}}).find("added_tokens_decoder"), std::string::npos);
  EXPECT_NE(refusal({{"added_tokens_decoder", {{"x", decoder_token("<|x|>")}}}}).find("under \"x\""),
            std::string::npos);
  EXPECT_NE(refusal({{"added_tokens_decoder", {1}}}).find("an object of tokens"), std::string::npos);
  EXPECT_NE(refusal({}, {{"added_tokens.json", {{"<|x|>", -1}}}}).find("added_tokens.json"), std::string::npos);
}

}  // namespace
}  // namespace megatrain
