#include "megatrain/tokenizer/tokenizer.h"

#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "megatrain/base/error.h"
#include "tests/support/added_token.h"
#include "tests/support/cpu_time.h"
#include "tests/support/tokenizer_goldens.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;

// Letters a to e, "ab", "abc" and "<unk>"; no pre-tokenizer.
Json small() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "added_tokens": [{"id": 8, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": false,
              "vocab": {"<unk>": 0, "a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "ab": 6, "abc": 7}, "merges": [["a", "b"], "ab c"]}
  })");
}

Tokenizer made(const Json& json) { return Tokenizer::from_json(json.dump(), "t.json"); }

// The error message for the file; empty if it is accepted.
std::string refusal(const std::string& text) {
  try {
    Tokenizer::from_json(text, "DIR/tokenizer.json");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input) << error.what();
    return error.what();
  }
}

std::string refusal_of(const std::function<void(Json&)>& change) {
  Json json = small();
  change(json);
  return refusal(json.dump());
}

TEST(Tokenizer, ANormalizerThatGrowsATextWithoutBoundIsRefused) {
  const Json grow = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaa"}};
  Json chain = Json::array();
  for (int i = 0; i < 12; ++i) chain.push_back(grow);
  for (const Json& normalizer : {Json{{"type", "Sequence"}, {"normalizers", chain}},
                                 Json{{"type", "Prepend"}, {"prepend", std::string(10'000'000, 'a')}}}) {
    Json json = small();
    json["normalizer"] = normalizer;
    const Tokenizer tokenizer = made(json);
    try {
      tokenizer.encode("abcab", false);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_NE(std::string(error.what()).find("t.json: normalizer"), std::string::npos) << error.what();
    }
  }
}

TEST(Tokenizer, MergesTheLowestRankFirstAndFusesUnknownCharacters) {
  const Tokenizer tokenizer = made(small());
  EXPECT_EQ(tokenizer.encode("abcab", false), (std::vector<int32_t>{7, 6}));
  EXPECT_EQ(tokenizer.encode("axyzb<end>é", false), (std::vector<int32_t>{1, 0, 2, 8, 0}));
  EXPECT_EQ(tokenizer.encode("", true), std::vector<int32_t>{});
  EXPECT_EQ(tokenizer.vocab_size(), 9);
  EXPECT_EQ(tokenizer.id_of("abc"), 7);
  EXPECT_EQ(tokenizer.id_of("<end>"), 8);
  EXPECT_EQ(tokenizer.id_of("zz"), -1);
  EXPECT_EQ(tokenizer.token_of(6), "ab");
  EXPECT_EQ(tokenizer.token_of(99), "");
  EXPECT_TRUE(tokenizer.is_special(8));
  EXPECT_FALSE(tokenizer.is_special(7));
}

TEST(Tokenizer, RangesNameTheBytesOfEachToken) {
  const Encoding encoding = made(small()).encode_with_ranges("abéé<end>c", false);
  EXPECT_EQ(encoding.ids, (std::vector<int32_t>{6, 0, 8, 3}));
  EXPECT_EQ(encoding.ranges, (std::vector<ByteRange>{{0, 2}, {2, 6}, {6, 11}, {11, 12}}));
}

TEST(Tokenizer, RangesReachOverAllThatAComposedCharacterCameFrom) {
  Json json = small();
  json["normalizer"] = {{"type", "NFC"}};
  json["model"]["vocab"]["é"] = 9;
  const Encoding encoding = made(json).encode_with_ranges("ae\u0301b", false);
  EXPECT_EQ(encoding.ids, (std::vector<int32_t>{1, 9, 2}));
  EXPECT_EQ(encoding.ranges, (std::vector<ByteRange>{{0, 1}, {1, 4}, {4, 5}}));
}

TEST(Tokenizer, TemplateSurroundsTheTextOnlyWhenAsked) {
  Json json = small();
  json["post_processor"] = Json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<end>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<end>", "type_id": 0}}],
    "pair": [], "special_tokens": {"<end>": {"id": "<end>", "ids": [8], "tokens": ["<end>"]}}})");
  const Tokenizer tokenizer = made(json);
  EXPECT_EQ(tokenizer.encode("ab", true), (std::vector<int32_t>{8, 6, 8}));
  EXPECT_EQ(tokenizer.encode("ab", false), (std::vector<int32_t>{6}));
  const Encoding encoding = tokenizer.encode_with_ranges("ab", true);
  EXPECT_EQ(encoding.ranges, (std::vector<ByteRange>{{0, 0}, {0, 2}, {2, 2}}));
}

TEST(Tokenizer, BytesFallBackOnlyWhenAllOfACharacterHaveTokens) {
  Json json = small();
  json["model"]["byte_fallback"] = true;
  json["model"]["vocab"]["<0xC3>"] = 9;
  json["model"]["vocab"]["<0xA9>"] = 10;
  json["added_tokens"] = Json::array();
  EXPECT_EQ(made(json).encode("aéè", false), (std::vector<int32_t>{1, 9, 10, 0}));
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8AndNamesTheByte) {
  const Tokenizer tokenizer = made(small());
  for (const std::string text : {"ab\xFF", "ab\xC3", "ab\xED\xA0\x80", "ab\xC0\x80", "ab\xF4\x90\x80\x80"}) {
    try {
      tokenizer.encode(text, false);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_NE(std::string(error.what()).find("byte 2 is 0x"), std::string::npos) << error.what();
    }
  }
}

TEST(Tokenizer, StreamHoldsBackIncompleteCharactersAndGivesTheRestAtTheEnd) {
  const Tokenizer tokenizer = Tokenizer::from_file(testing::golden_path("llama3.tokenizer.json"));
  const std::vector<int32_t> ids = tokenizer.encode("🦄", false);
  ASSERT_GT(ids.size(), 1u);
  StreamDecoder stream(tokenizer, false);
  for (size_t i = 0; i + 1 < ids.size(); i++) EXPECT_EQ(stream.add(ids[i]), "");
  EXPECT_EQ(stream.add(ids.back()), "🦄");
  EXPECT_EQ(stream.add(ids.front()), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Tokenizer, StreamOfBytesThatAreNoTextDoesNotHoldThemForever) {
  const Tokenizer tokenizer = Tokenizer::from_file(testing::golden_path("llama3.tokenizer.json"));
  const int32_t byte = tokenizer.encode("🦄", false).front();
  StreamDecoder stream(tokenizer, false);
  size_t given = 0;
  for (int i = 0; i < 1000; i++) given += stream.add(byte).size();
  EXPECT_GT(given, 3u * 900);
}

TEST(Tokenizer, WordsOfAMillionLettersTakeTimeThatGrowsAsTheirLength) {
  for (const char* const name : {"llama3", "llama2", "t5", "llm_jp"}) {
    const Tokenizer tokenizer = Tokenizer::from_file(testing::golden_path(std::string(name) + ".tokenizer.json"));
    const auto seconds = [&](size_t letters) {
      std::string word;
      while (word.size() < letters) word += "thewordofand";
      return cpu_seconds([&] { EXPECT_FALSE(tokenizer.encode(word, false).empty()); });
    };
    seconds(1000);
    EXPECT_LT(seconds(1 << 20), 60 * std::max(seconds(1 << 16), 0.005))
        << name;  // 16 times the letters; quadratic would be 256
  }
}

TEST(Tokenizer, ThreadsEncodeAtOnceAsOneAloneAndTokenizersDoNotShareWords) {
  const Tokenizer first = Tokenizer::from_file(testing::golden_path("qwen.tokenizer.json"));
  const Tokenizer second = Tokenizer::from_file(testing::golden_path("mistral.tokenizer.json"));
  std::vector<std::vector<int32_t>> want;
  for (const std::string& text : testing::golden_texts()) {
    want.push_back(first.encode(text, true));
    want.push_back(second.encode(text, true));
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); t++) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < testing::golden_texts().size(); i++) {
        const std::string& text = testing::golden_texts()[i];
        wrong[t] += first.encode(text, true) != want[2 * i];
        wrong[t] += second.encode(text, true) != want[2 * i + 1];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(TokenizerFile, ThatIsAbsentOrNotJsonIsRefusedWithItsName) {
  EXPECT_THROW(Tokenizer::from_file("/nowhere/tokenizer.json"), Error);
  EXPECT_NE(refusal("{\"a\": 1,\n  oops}").find("DIR/tokenizer.json is not valid JSON at line 2"), std::string::npos);
  EXPECT_NE(refusal("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("[1, 2]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(refusal(std::string("{}\0", 3)).find("NUL"), std::string::npos);
  EXPECT_NE(refusal("{\"model\": 1, \"model\": 2}").find("duplicate key"), std::string::npos);
  EXPECT_NE(refusal(std::string(65, '[')).find("deeper"), std::string::npos);
  EXPECT_NE(refusal("\xFF\xFE").find("not valid JSON"), std::string::npos);
}

TEST(TokenizerFile, ManyAddedTokensTakeTimeInProportionAndEndlessOnesAreRefused) {
  const auto with = [&](const Json& tokens) { return refusal_of([&](Json& json) { json["added_tokens"] = tokens; }); };
  Json many = Json::array();
  for (int i = 0; i < 100'000; i++) many.push_back(added_token(i + 1000, "<|" + std::to_string(i) + "|>"));
  EXPECT_LT(cpu_seconds([&] { EXPECT_EQ(with(many), ""); }), 20);
  EXPECT_NE(with(Json::array({added_token(1000, std::string(5000, 'a'))}))
                .find("has 5000 bytes; a token may have at most 4096"),
            std::string::npos);
}

TEST(TokenizerFile, WithAFeatureThatIsNotSupportedIsRefusedByTheFeaturesName) {
  const auto typed = [](const char* key, const char* type) {
    return refusal_of([&](Json& json) { json[key] = {{"type", type}}; });
  };
  EXPECT_NE(typed("normalizer", "BertNormalizer").find("normalizer has a normalizer of type \"BertNormalizer\""),
            std::string::npos);
  EXPECT_NE(typed("pre_tokenizer", "UnicodeScripts").find("UnicodeScripts"), std::string::npos);
  EXPECT_NE(typed("post_processor", "RobertaProcessing").find("RobertaProcessing"), std::string::npos);
  EXPECT_NE(typed("decoder", "WordPiece").find("WordPiece"), std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) { json["model"]["type"] = "WordPiece"; }).find("WordPiece"), std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) { json["model"]["dropout"] = 0.1; }).find("dropout"), std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) { json["version"] = "2.0"; }).find("2.0"), std::string::npos);
  EXPECT_EQ(refusal_of([](Json& json) { json["model"]["dropout"] = 0.0; }), "");
}

TEST(TokenizerFile, WithAWrongValueIsRefusedByItsPlace) {
  EXPECT_NE(refusal_of([](Json& json) { json.erase("model"); }).find("lacks \"model\""), std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) { json["model"].erase("vocab"); }).find("model lacks \"vocab\""),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) { json["model"].erase("merges"); }).find("model lacks \"merges\""),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) { json["model"] = 3; }).find("expected an object"), std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) { json["model"]["vocab"]["a"] = "x"; }).find("not a whole number"),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) { json["model"]["vocab"]["a"] = -1; }).find("not a whole number"),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) { json["model"]["vocab"]["a"] = 2; }).find("to two tokens"), std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) { json["model"]["vocab"]["a"] = 4000000000u; }).find("not a whole number"),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) {
              json["model"]["merges"] = Json::array({Json::array({"a", "z"})});
            }).find("\"z\", which the vocabulary lacks"),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) {
              json["model"]["merges"] = Json::array({Json::array({"d", "e"})});
            }).find("\"de\", which the vocabulary lacks"),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) { json["model"]["merges"] = {"a b c"}; }).find("not two tokens"),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) { json["model"]["merges"] = {7}; }).find("not a pair of tokens"),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) {
              json["model"]["fuse_unk"] = "yes";
            }).find("model.fuse_unk is string, expected true or false"),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) {
              json["added_tokens"][0].erase("content");
            }).find("added_tokens[0] lacks \"content\""),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) {
              json["added_tokens"] = {{"a", 1}};
            }).find("expected an array"),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) {
              json["pre_tokenizer"] = {{"type", "Split"}};
            }).find("lacks \"pattern\""),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) {
              json["pre_tokenizer"] = {
                  {"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Twisted"}, {"invert", false}};
            }).find("behavior"),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) {
              json["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "__"}, {"prepend_scheme", "always"}};
            }).find("single character"),
            std::string::npos);
  EXPECT_NE(refusal_of([](Json& json) {
              json["post_processor"] = Json::parse(
                  R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}],
                                                       "pair": [], "special_tokens": {"<x>": {"ids": [70]}}})");
            }).find("not an id of the vocabulary"),
            std::string::npos);
}

TEST(TokenizerFile, WithARegularExpressionThatIsNotUnderstoodIsRefusedWithTheExpression) {
  for (const char* const pattern : {"(a",
                                    "a)",
                                    "[a",
                                    "[]a]",
                                    "*a",
                                    "a(?<name>b)",
                                    "(a)\\1",
                                    "\\p{Nonsense}",
                                    "[[:alpha:]]",
                                    "\\R",
                                    "\\X",
                                    "(?i)stra\xC3\x9F"
                                    "e",
                                    "(?i)fish",
                                    "[z-a]",
                                    "\\",
                                    "\\x{110000}",
                                    "(?x)a",
                                    "(?i)\\p{Lu}",
                                    "a{100000}",
                                    "(?<=a+)b",
                                    "\\xff",
                                    "\\u12"}) {
    const std::string message = refusal_of([&](Json& json) {
      json["pre_tokenizer"] = {
          {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    });
    EXPECT_NE(message.find("DIR/tokenizer.json: pre_tokenizer.pattern: the regular expression"), std::string::npos)
        << pattern << ": " << message;
  }
}

TEST(TokenizerFile, ChangedInOneByteIsRefusedOrStillEncodes) {
  Json json = small();
  json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "c+"}}}, {"content", "b"}};
  json["pre_tokenizer"] = Json::parse(R"j({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "(?i:'s)|[^\\r\\p{L}]?\\p{L}+|\\s+(?!\\S)"}, "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}]})j");
  json["decoder"] = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const std::string text = json.dump();
  int refused = 0;
  for (size_t at = 0; at < text.size(); at += 3) {
    for (const char other : {'"', '0', '\\'}) {
      std::string changed = text;
      changed[at] = other;
      try {
        const Tokenizer tokenizer = Tokenizer::from_json(changed, "t.json");
        tokenizer.decode(tokenizer.encode("abc de <end> x'S 12", true), true);
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ExitCode::bad_input) << error.what();
        refused++;
      }
    }
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace megatrain
