#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "megatrain/tokenizer/normalizer.h"
#include "megatrain/tokenizer/pre_tokenizer.h"
#include "megatrain/tokenizer/tokenizer.h"
#include "megatrain/unicode/unicode.h"
#include "tests/support/tokenizer_goldens.h"

namespace megatrain {
namespace {

using testing::golden_texts;
using testing::Hash;
using testing::read_golden;

class GoldenVocabulary : public ::testing::TestWithParam<const char*> {
 protected:
  Tokenizer tokenizer_ = Tokenizer::from_file(testing::golden_path(std::string(GetParam()) + ".tokenizer.json"));
  nlohmann::json golden_ = read_golden(std::string(GetParam()) + ".golden.json");

  std::string golden_of(const char* what, size_t text) const {
    return golden_.at(what).get_ref<const std::string&>().substr(8 * text, 8);
  }
};

TEST_P(GoldenVocabulary, GivesTheIdsOfTheTokenizersLibraryForEveryText) {
  EXPECT_EQ(tokenizer_.vocab_size(), golden_.at("vocab_size").get<int64_t>());
  for (size_t i = 0; i < golden_.at("first").size(); i++) {
    EXPECT_EQ(tokenizer_.encode(golden_texts()[i], true), golden_.at("first")[i].get<std::vector<int32_t>>())
        << golden_texts()[i];
  }
  ASSERT_EQ(golden_.at("ids").get<std::string>().size(), 8 * golden_texts().size());
  for (size_t i = 0; i < golden_texts().size(); i++) {
    Hash hash;
    for (const int32_t id : tokenizer_.encode(golden_texts()[i], true)) hash.add_number(static_cast<uint32_t>(id));
    EXPECT_EQ(hash.hex(), golden_of("ids", i)) << "text " << i << ": " << golden_texts()[i];
  }
}

TEST_P(GoldenVocabulary, DecodesAsTheTokenizersLibraryWithAndWithoutSpecialTokens) {
  for (size_t i = 0; i < golden_texts().size(); i++) {
    const std::vector<int32_t> ids = tokenizer_.encode(golden_texts()[i], true);
    Hash hash;
    hash.add(tokenizer_.decode(ids, false));
    hash.add(std::string_view("\0", 1));
    hash.add(tokenizer_.decode(ids, true));
    EXPECT_EQ(hash.hex(), golden_of("decoded", i)) << "text " << i << ": " << golden_texts()[i];
  }
}

class GoldenRanges : public GoldenVocabulary {};
class GoldenStream : public GoldenVocabulary {};

TEST_P(GoldenRanges, AreThoseOfTheTokenizersLibrary) {
  for (size_t i = 0; i < golden_texts().size(); i++) {
    Hash hash;
    for (const ByteRange& range : tokenizer_.encode_with_ranges(golden_texts()[i], false).ranges) {
      hash.add_number(range.begin);
      hash.add_number(range.end);
    }
    EXPECT_EQ(hash.hex(), golden_of("ranges", i)) << "text " << i << ": " << golden_texts()[i];
  }
}

TEST_P(GoldenVocabulary, GivesTheSameIdsWithRangesAndWithout) {
  for (const std::string& text : golden_texts()) {
    const Encoding encoding = tokenizer_.encode_with_ranges(text, true);
    EXPECT_EQ(encoding.ids, tokenizer_.encode(text, true));
    ASSERT_EQ(encoding.ids.size(), encoding.ranges.size());
    for (const ByteRange& range : encoding.ranges) {
      EXPECT_LE(range.begin, range.end);
      EXPECT_LE(range.end, text.size());
    }
  }
}

TEST_P(GoldenStream, GivesTheTextThatIsDecodedAtOnce) {
  for (size_t i = 0; i < golden_texts().size(); i += 3) {
    const std::vector<int32_t> ids = tokenizer_.encode(golden_texts()[i], true);
    StreamDecoder stream(tokenizer_, false);
    std::string text;
    for (const int32_t id : ids) {
      const std::string fresh = stream.add(id);
      EXPECT_EQ(find_invalid_utf8(fresh), std::string::npos);
      text += fresh;
    }
    text += stream.finish();
    EXPECT_EQ(text, tokenizer_.decode(ids, false)) << "text " << i;
  }
}

std::string name_of(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(Vocabularies, GoldenVocabulary,
                         ::testing::Values("llama3", "qwen", "gpt2", "tekken", "deepseek", "llama2", "mistral",
                                           "folded", "affixed", "bytes_first", "t5", "xlm_roberta", "llm_jp", "helium",
                                           "unigram_bytes"),
                         name_of);
// If characters are composed, our ranges cover all of them, the library's only the first.
INSTANTIATE_TEST_SUITE_P(Vocabularies, GoldenRanges,
                         ::testing::Values("llama3", "gpt2", "tekken", "deepseek", "llama2", "mistral", "xlm_roberta"),
                         name_of);
// "affixed" has no decoder, so a token's text depends on all tokens.
INSTANTIATE_TEST_SUITE_P(Vocabularies, GoldenStream,
                         ::testing::Values("llama3", "qwen", "gpt2", "tekken", "deepseek", "llama2", "mistral",
                                           "folded", "bytes_first", "t5", "xlm_roberta", "llm_jp", "helium",
                                           "unigram_bytes"),
                         name_of);

TEST(GoldenPreTokenizers, CutEveryTextAsTheTokenizersLibraryDoes) {
  std::vector<TextPiece> pieces, spare;
  for (const nlohmann::json& golden : read_golden("pre_tokenizers.json")) {
    const PreTokenizer pre_tokenizer(TokenizerNode(golden.at("config"), "golden", ""));
    std::vector<std::string> results;
    for (size_t i = 0; i < 300; i++) {
      for (const bool track : {false, true}) {
        TextPool pool;
        pieces = {TextPiece{.text = golden_texts()[i]}};
        pre_tokenizer.cut(pieces, spare, pool, track || pre_tokenizer.needs_origins());
        std::string joined;
        for (const TextPiece& piece : pieces) {
          if (!joined.empty()) joined += '\x01';
          joined += piece.text;
        }
        if (!track) results.push_back(joined);
        EXPECT_EQ(results.back(), joined);
      }
    }
    EXPECT_EQ(testing::hash_in_tens(results), golden.at("pieces").get<std::string>()) << golden.at("config").dump();
  }
}

TEST(GoldenNormalizers, ChangeEveryTextAndEveryCodePointAsTheTokenizersLibraryDoes) {
  for (const nlohmann::json& golden : read_golden("normalizers.json")) {
    const Normalizer normalizer(TokenizerNode(golden.at("config"), "golden", ""));
    const auto normalized = [&](const std::string& text) {
      const std::optional<AlignedText> result = normalizer.normalize(text, 0, true);
      EXPECT_TRUE(!result || result->text.size() == result->origins.size());
      return result ? result->text : text;
    };
    std::vector<std::string> results;
    for (const std::string& text : golden_texts()) results.push_back(normalized(text));
    EXPECT_EQ(testing::hash_in_tens(results), golden.at("texts").get<std::string>()) << golden.at("config").dump();
    if (golden.at("every_code_point") == "") continue;
    // One line per code point; a newline is adjacent to no other character.
    Hash hash;
    for (uint32_t begin = 0; begin <= kLastCodePoint; begin += 4096) {
      std::string text;
      for (uint32_t code = begin; code < begin + 4096; code++) {
        if (code >= 0xD800 && code <= 0xDFFF) continue;
        if (code > 0) text += "\n";
        text += "a\u0327";
        append_utf8(text, code);
        text += "\u0323\u0301";
      }
      hash.add(normalized(text));
    }
    EXPECT_EQ(hash.hex(), golden.at("every_code_point").get<std::string>()) << golden.at("config").dump();
  }
}

}  // namespace
}  // namespace megatrain
