#include "megatrain/tokenizer/charsmap.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "megatrain/base/error.h"
#include "megatrain/tokenizer/normalizer.h"

namespace megatrain {
namespace {

// The double array of a single key, "a", and its replacement.
struct RawCharsmap {
  std::vector<uint32_t> units = std::vector<uint32_t>(1024, 1u << 31);
  std::string texts;

  explicit RawCharsmap(const std::string& text) : texts(text + '\0') {
    units[0] = 256u << 10;
    units[256 ^ 'a'] = 'a' | 1u << 8 | (256u ^ 'a' ^ 512u) << 10;
    units[512] = 1u << 31 | 0;  // the text's place
  }

  std::string bytes() const {
    std::string result;
    const auto number = [&](uint32_t value) {
      for (int i = 0; i < 4; i++) result += static_cast<char>(value >> (8 * i));
    };
    number(static_cast<uint32_t>(4 * units.size()));
    for (const uint32_t unit : units) number(unit);
    return result + texts;
  }
};

std::string to_base64(const std::string& bytes) {
  static const std::string kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; k++)
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; k++) text += i + k > bytes.size() ? '=' : kAlphabet[three >> (18 - 6 * k) & 63];
  }
  return text;
}

nlohmann::json precompiled(const std::string& bytes) {
  return {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(bytes)}};
}

AlignedText normalized(const nlohmann::json& config, const std::string& text) {
  const Normalizer normalizer{TokenizerNode(config, "DIR/tokenizer.json", "normalizer")};
  return normalizer.normalize(text, 10, true).value_or(AlignedText{.text = "unchanged"});
}

// The error at loading, or at normalizing an "a"; empty if there is none.
std::string refusal_of_map(const nlohmann::json& config) {
  try {
    normalized(config, "a");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
}

std::string refusal_of_raw(const std::function<void(RawCharsmap&)>& change) {
  RawCharsmap raw("A");
  change(raw);
  return refusal_of_map(precompiled(raw.bytes()));
}

TEST(Charsmap, ReplacesShortGraphemesWholeAndTheCharactersOfLongOnes) {
  const nlohmann::json map = precompiled(RawCharsmap("XY").bytes());
  EXPECT_EQ(normalized(map, "bab").text, "bXYb");
  EXPECT_EQ(normalized(map, "a\u0301b").text, "XYb");                                // 3 bytes: the mark is lost
  EXPECT_EQ(normalized(map, "a\u0301\u0302\u0303b").text, "XY\u0301\u0302\u0303b");  // 7 bytes
  EXPECT_EQ(normalized(map, "bcd").text, "unchanged");
  EXPECT_EQ(normalized(map, "\u00E9").text, "\u00E9");
}

TEST(Charsmap, GivesReplacementsTheOriginOfAllThatTheyReplace) {
  const AlignedText text = normalized(precompiled(RawCharsmap("XY").bytes()), "ba\u0301c");
  EXPECT_EQ(text.text, "bXYc");
  EXPECT_EQ(text.origins, (std::vector<ByteRange>{{10, 11}, {11, 14}, {11, 14}, {14, 15}}));
  const AlignedText shorter = normalized(precompiled(RawCharsmap("").bytes()), "bac");
  EXPECT_EQ(shorter.text, "bc");
  EXPECT_EQ(shorter.origins, (std::vector<ByteRange>{{10, 11}, {12, 13}}));
}

TEST(Charsmap, ThatIsBrokenIsRefusedByItsPlace) {
  EXPECT_EQ(refusal_of_raw([](RawCharsmap&) {}), "");
  const auto with = [](const std::string& text) {
    return refusal_of_map({{"type", "Precompiled"}, {"precompiled_charsmap", text}});
  };
  EXPECT_NE(refusal_of_map({{"type", "Precompiled"}}).find("normalizer lacks \"precompiled_charsmap\""),
            std::string::npos);
  EXPECT_NE(with("").find("too short"), std::string::npos);
  EXPECT_NE(with("AAAAA").find("base64"), std::string::npos);
  EXPECT_NE(with("AA\u00E9=").find("base64"), std::string::npos);
  EXPECT_NE(with(to_base64(std::string(12, '\1'))).find("double array 16843009 bytes of 8"), std::string::npos);
  EXPECT_NE(with(to_base64(std::string(12, '\0'))).find("double array 0 bytes"), std::string::npos);
  EXPECT_NE(refusal_of_raw([](RawCharsmap& raw) { raw.texts = "\xFF"; }).find("not UTF-8"), std::string::npos);
  const std::string outside = "normalizer.precompiled_charsmap refers to a place outside it";
  EXPECT_NE(refusal_of_raw([](RawCharsmap& raw) { raw.units[0] = 2000u << 10; }).find(outside), std::string::npos);
  EXPECT_NE(refusal_of_raw([](RawCharsmap& raw) { raw.units[256 ^ 'a'] |= 1u << 30; }).find(outside),
            std::string::npos);
  EXPECT_NE(refusal_of_raw([](RawCharsmap& raw) { raw.units[512] = 3; }).find(outside), std::string::npos);
  EXPECT_NE(refusal_of_raw([](RawCharsmap& raw) {
              raw.texts = "\u00E9";
              raw.units[512] = 1;
            }).find(outside),
            std::string::npos);
}

TEST(Charsmap, ThatGrowsATextWithoutBoundIsRefused) {
  const nlohmann::json map = precompiled(RawCharsmap(std::string(1 << 20, 'x')).bytes());
  EXPECT_NE(refusal_of_map(map).find("expands a text"), std::string::npos);
}

}  // namespace
}  // namespace megatrain
