#include "megatrain/tokenizer/unigram.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "megatrain/base/error.h"
#include "megatrain/tokenizer/tokenizer.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;

Json few_pieces() {
  return Json::parse(R"({
    "version": "1.0", "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "added_tokens": [],
    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
              "vocab": [["<unk>", 0], ["a", -1.0], ["b", -1.0], ["c", -1.0], ["ab", -2.0], ["bc", -2.0], ["abc", -4.0],
                        ["bb", -1.5]]}
  })");
}

Tokenizer read(const Json& json) { return Tokenizer::from_json(json.dump(), "t.json"); }

std::vector<int32_t> ids_of(const Json& json, const std::string& text) { return read(json).encode(text, false); }

std::string refusal_with(const std::function<void(Json&)>& change) {
  Json json = few_pieces();
  change(json["model"]);
  try {
    ids_of(json, "abx");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input) << error.what();
    return error.what();
  }
}

TEST(Unigram, TakesTheGreatestSumOfScoresAndOfEqualOnesTheLongestLastToken) {
  EXPECT_EQ(ids_of(few_pieces(), "abc"), (std::vector<int32_t>{1, 5}));  // a bc; a b c and ab c have the same sum
  EXPECT_EQ(ids_of(few_pieces(), "ab"), (std::vector<int32_t>{4}));
  EXPECT_EQ(ids_of(few_pieces(), "abbc"), (std::vector<int32_t>{1, 7, 3}));
  EXPECT_EQ(ids_of(few_pieces(), ""), std::vector<int32_t>{});
  EXPECT_EQ(read(few_pieces()).vocab_size(), 8);
}

TEST(Unigram, OfTwoTokensWithOneTextTheLastCounts) {
  Json json = few_pieces();
  json["model"]["vocab"].push_back({"ab", -9.0});
  EXPECT_EQ(ids_of(json, "ab"), (std::vector<int32_t>{1, 2}));
  json["model"]["vocab"].back()[1] = -1.0;
  EXPECT_EQ(ids_of(json, "ab"), (std::vector<int32_t>{8}));
}

TEST(Unigram, JoinsUnknownNeighboursAndWhatWritesTheUnknownToken) {
  EXPECT_EQ(ids_of(few_pieces(), "axyb\u00E9"), (std::vector<int32_t>{1, 0, 2, 0}));
  EXPECT_EQ(ids_of(few_pieces(), "x<unk>yb"), (std::vector<int32_t>{0, 2}));
  const Encoding encoding = read(few_pieces()).encode_with_ranges("ax\u00E9bc", false);
  EXPECT_EQ(encoding.ranges, (std::vector<ByteRange>{{0, 1}, {1, 4}, {4, 6}}));
}

TEST(Unigram, UnknownTextThatIsATokenBecomesThatToken) {
  Json json = few_pieces();
  // Unknown characters score 10 less than the lowest score, 15 here, so that three of them are better than the token.
  for (Json& entry : json["model"]["vocab"]) entry[1] = 30.0;
  json["model"]["vocab"].push_back({"xyz", 25.0});
  EXPECT_EQ(ids_of(json, "axyzb"), (std::vector<int32_t>{1, 8, 2}));
  EXPECT_EQ(ids_of(json, "xyzxyz"), (std::vector<int32_t>{0}));
}

TEST(Unigram, FallsBackToBytesOnlyIfEveryByteOfTheUnknownTextHasAToken) {
  Json json = few_pieces();
  json["model"]["byte_fallback"] = true;
  for (const char* const byte : {"<0xC3>", "<0xA9>", "<0xA8>"}) json["model"]["vocab"].push_back({byte, -20.0});
  const Encoding encoding = read(json).encode_with_ranges("a\u00E9\u00E8b", false);
  EXPECT_EQ(encoding.ids, (std::vector<int32_t>{1, 8, 9, 8, 10, 2}));
  // Each byte has the range of its own character.
  EXPECT_EQ(encoding.ranges, (std::vector<ByteRange>{{0, 1}, {1, 3}, {1, 3}, {3, 5}, {3, 5}, {5, 6}}));
  EXPECT_EQ(ids_of(json, "\u00E9x"), (std::vector<int32_t>{0}));
}

TEST(Unigram, SumsRunOnFromTheTextsBeginningAsTheirRoundingDecides) {
  // Beside a sum of 2^60 the differences between these scores vanish, and the first way stays.
  Json json = few_pieces();
  json["model"]["vocab"].push_back({"z", -1152921504606846976.0});
  EXPECT_EQ(ids_of(json, "abc"), (std::vector<int32_t>{1, 5}));
  EXPECT_EQ(ids_of(json, "zabc"), (std::vector<int32_t>{8, 6}));
}

TEST(Unigram, RangesReachOverWhatANormalizerAndMarksCameFrom) {
  Json json = few_pieces();
  json["model"]["vocab"].push_back({"\u2581", -1.0});
  json["normalizer"] = Json::parse(R"({"type": "Sequence", "normalizers": [
    {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": "(?<!\\n)^"}, "content": "\u2581"}]})");
  json["added_tokens"] = Json::parse(R"([{"id": 9, "content": "<s>", "single_word": false, "lstrip": false,
    "rstrip": false, "normalized": false, "special": true}])");
  // A full-width a, and a mark before each text: it has no bytes of its own.
  const Encoding encoding = read(json).encode_with_ranges("\uFF41b<s>c", false);
  EXPECT_EQ(encoding.ids, (std::vector<int32_t>{8, 4, 9, 8, 3}));
  EXPECT_EQ(encoding.ranges, (std::vector<ByteRange>{{0, 0}, {0, 4}, {4, 7}, {7, 7}, {7, 8}}));
}

TEST(Unigram, ThatIsBrokenOrSamplesIsRefusedByThePlace) {
  EXPECT_EQ(refusal_with([](Json&) {}), "");
  EXPECT_EQ(refusal_with([](Json& model) { model.erase("type"); }), "");
  EXPECT_NE(refusal_with([](Json& model) {
              model["vocab"] = {{"a", 1}};
            }).find("is not an array of tokens"),
            std::string::npos);
  for (const char* const entry : {"[\"d\"]", "[\"d\", \"e\"]", "[1, 2]", "\"d\"", "[\"d\", null]"}) {
    const std::string message = refusal_with([&](Json& model) { model["vocab"].push_back(Json::parse(entry)); });
    EXPECT_NE(message.find("model.vocab has an entry at 8"), std::string::npos) << entry << ": " << message;
  }
  EXPECT_NE(refusal_with([](Json& model) {
              model["vocab"].push_back({std::string(5000, 'a'), -1.0});
            }).find("a token of 5000 bytes at 8"),
            std::string::npos);
  EXPECT_NE(refusal_with([](Json& model) { model["unk_id"] = 8; }).find("model.unk_id is 8"), std::string::npos);
  EXPECT_NE(refusal_with([](Json& model) { model["unk_id"] = -1; }).find("model.unk_id"), std::string::npos);
  EXPECT_NE(refusal_with([](Json& model) { model["alpha"] = 0.1; }).find("\"alpha\", which samples"),
            std::string::npos);
  EXPECT_NE(refusal_with([](Json& model) { model["unk_id"] = nullptr; }).find("the character \"x\""),
            std::string::npos);
}

}  // namespace
}  // namespace megatrain
