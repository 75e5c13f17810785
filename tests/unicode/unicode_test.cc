#include "megatrain/unicode/unicode.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "megatrain/unicode/bytes.h"
#include "megatrain/unicode/normalize.h"

namespace megatrain {
namespace {

using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;

Pairs pairs_of(const CodePointSet& set) {
  Pairs pairs;
  for (const CodeRange& range : set.ranges()) pairs.emplace_back(range.first, range.last);
  return pairs;
}

TEST(CodePointSet, JoinsRangesThatTouchAndKeepsThemInOrder) {
  EXPECT_EQ(pairs_of(CodePointSet({{20, 30}, {5, 9}, {1, 4}, {25, 40}})), (Pairs{{1, 9}, {20, 40}}));
}

TEST(CodePointSet, UnitesIntersectsAndComplementsAsSetsDo) {
  const CodePointSet low({{0, 10}, {20, 30}}), high({{8, 25}});
  EXPECT_EQ(pairs_of(low.united(high)), (Pairs{{0, 30}}));
  EXPECT_EQ(pairs_of(low.intersected(high)), (Pairs{{8, 10}, {20, 25}}));
  EXPECT_EQ(pairs_of(low.complement()), (Pairs{{11, 19}, {31, kLastCodePoint}}));
  EXPECT_TRUE(CodePointSet::all().complement().ranges().empty());
  EXPECT_TRUE(low.contains(10) && low.contains(20) && !low.contains(11) && !low.contains(31));
}

TEST(CodePointMap, GivesTheValueOfTheRangeAcrossPages) {
  const CodePointMap<uint8_t> map(7, {{{250, 600}, 1}, {{0x10FF00, kLastCodePoint}, 2}});
  for (const uint32_t code : {0u, 249u, 601u, 0x10FEFFu}) EXPECT_EQ(map[code], 7) << code;
  for (const uint32_t code : {250u, 255u, 256u, 511u, 512u, 600u}) EXPECT_EQ(map[code], 1) << code;
  EXPECT_EQ(map[0x10FF00], 2);
  EXPECT_EQ(map[kLastCodePoint], 2);
}

TEST(UnicodeProperty, IsFoundInEverySpellingAndRefusedWhenUnknown) {
  for (const char* name : {"Lu", "lu", "Uppercase_Letter", "uppercase letter", "UPPERCASE-LETTER"}) {
    CodePointSet set;
    ASSERT_TRUE(find_property(name, set)) << name;
    EXPECT_TRUE(set.contains('A') && set.contains(0x0416) && !set.contains('a')) << name;
  }
  CodePointSet han, none;
  ASSERT_TRUE(find_property("Han", han));
  EXPECT_TRUE(han.contains(0x65E5) && !han.contains(0x3042));
  EXPECT_FALSE(find_property("Klingon", none));
}

std::string formed(UnicodeForm form, const std::string& text) {
  return to_unicode_form(form, AlignedText{.text = text}).text;
}

TEST(UnicodeForms, ComposeAndDecomposeLettersHangulAndLigatures) {
  EXPECT_EQ(formed(UnicodeForm::nfc, "e\u0301"), "\u00e9");
  EXPECT_EQ(formed(UnicodeForm::nfd, "\u00e9"), "e\u0301");
  EXPECT_EQ(formed(UnicodeForm::nfc, "\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(formed(UnicodeForm::nfd, "\ud55c"), "\u1112\u1161\u11ab");
  EXPECT_EQ(formed(UnicodeForm::nfc, "\ufb01"), "\ufb01");
  EXPECT_EQ(formed(UnicodeForm::nfkc, "\ufb01"), "fi");
  EXPECT_EQ(formed(UnicodeForm::nfd, "a\u0301\u0323"), "a\u0323\u0301");  // by combining class
}

TEST(UnicodeForms, ATextThatIsSurelyNormalStaysAsItIs) {
  for (const UnicodeForm form : {UnicodeForm::nfc, UnicodeForm::nfd, UnicodeForm::nfkc, UnicodeForm::nfkd})
    for (const std::string text : {"plain", "e\u0301", "\u00e9", "\ufb01", "\ud55c", "a\u0323\u0301"})
      EXPECT_TRUE(!is_surely_normal(form, text) || formed(form, text) == text) << text;
  EXPECT_TRUE(is_surely_normal(UnicodeForm::nfc, "plain"));
  EXPECT_FALSE(is_surely_normal(UnicodeForm::nfd, "\u00e9"));
}

TEST(ByteAlphabet, BytesThatPrintStandForThemselvesAndOthersForLettersFromU0100) {
  EXPECT_EQ(kByteCharacters['!'], '!');
  EXPECT_EQ(kByteCharacters[0xE9], 0xE9);
  EXPECT_EQ(kByteCharacters[' '], 0x120);
  EXPECT_EQ(kByteCharacters['\n'], 0x10A);
  EXPECT_EQ(kByteCharacters[0xAD], 0x143);  // the soft hyphen, the last that is not printable
}

TEST(ByteAlphabet, EveryByteHasACharacterOfItsOwnThatGivesItBack) {
  std::string text, bytes;
  for (const uint16_t character : kByteCharacters) append_utf8(text, character);
  ASSERT_TRUE(to_bytes(text, bytes));
  ASSERT_EQ(bytes.size(), 256u);
  for (size_t byte = 0; byte < 256; byte++) EXPECT_EQ(static_cast<unsigned char>(bytes[byte]), byte);
  EXPECT_FALSE(to_bytes(" ", bytes));  // a space stands for no byte
}

}  // namespace
}  // namespace megatrain
