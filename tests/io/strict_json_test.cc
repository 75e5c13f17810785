#include "megatrain/io/strict_json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace megatrain {
namespace {

using Kind = JsonFault::Kind;

template <class Json>
class StrictJson : public testing::Test {
 protected:
  static std::optional<JsonFault> fault_of(std::string_view text) {
    StrictJsonBuilder<Json> builder;
    return parse_strictly(text, builder);
  }
  static Json value_of(std::string_view text) {
    StrictJsonBuilder<Json> builder;
    EXPECT_FALSE(parse_strictly(text, builder)) << text;
    return builder.take();
  }
  static void expect_fault(Kind kind, size_t byte, std::string_view detail, std::string_view text) {
    const std::optional<JsonFault> fault = fault_of(text);
    ASSERT_TRUE(fault) << text;
    EXPECT_EQ(fault->kind, kind) << text;
    EXPECT_EQ(fault->byte, byte) << text;
    EXPECT_NE(fault->detail.find(detail), std::string::npos) << fault->detail;
  }
  // {"k0": 0, "k1": 1, ...} with one more member.
  static std::string with_members(int count, const std::string& last) {
    std::string text = "{";
    for (int i = 0; i < count; ++i) text += fmt::format("\"k{}\": {}, ", i, i);
    return text + fmt::format("\"{}\": -1}}", last);
  }
};

using Orders = testing::Types<nlohmann::json, nlohmann::ordered_json>;
TYPED_TEST_SUITE(StrictJson, Orders);

TYPED_TEST(StrictJson, BuildsWhatTheLibraryBuilds) {
  for (const std::string text : {R"({"b": [1, -2, 2.5, true, null, "t", [], {}], "": 18446744073709551615})",
                                 R"({"b": {"c": {"d": [[{"e": 1}]]}, "a": 2}, "a": 3})", "[]", "3", " null\n"}) {
    EXPECT_EQ(this->value_of(text).dump(), TypeParam::parse(text).dump());
  }
}

TYPED_TEST(StrictJson, FindsAKeyThatStandsTwiceAmongFewAndAmongMany) {
  for (const int count : {1, 15, 16, 17, 18, 100}) {
    EXPECT_EQ(this->value_of(this->with_members(count, "other")).size(), static_cast<size_t>(count) + 1);
    for (const int again : {0, count - 1}) {
      const std::string name = fmt::format("k{}", again);
      this->expect_fault(Kind::key_twice, 0, name, this->with_members(count, name));
    }
  }
  this->expect_fault(Kind::key_twice, 0, "a", R"({"a": {"a": 1}, "a": 2})");
  EXPECT_FALSE(this->fault_of(R"([{"a": {"a": 1}}, {"a": 2}])"));
}

TYPED_TEST(StrictJson, TakesSixtyFourLevels) {
  const auto nested = [](size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_FALSE(this->fault_of(nested(64)));
  this->expect_fault(Kind::too_deep, 0, "", nested(65));
}

TYPED_TEST(StrictJson, SaysWhereATextIsMalformedAndWhy) {
  this->expect_fault(Kind::malformed, 6, "invalid literal", "{\"a\": b}");
  this->expect_fault(Kind::malformed, 3, "unexpected", "{} {}");
  this->expect_fault(Kind::malformed, 3, "UTF-8", "[\"a\xff\"]");
  this->expect_fault(Kind::nul_byte, 2, "", std::string_view("{}\0{}", 5));
  this->expect_fault(Kind::unusable, 5, "number overflow", "[1e999]");
  EXPECT_EQ(this->fault_of("[1e999]")->detail.find("json.exception"), std::string::npos);
}

TEST(TextPlace, CountsLinesAndColumnsFromOne) {
  const std::string_view text = "ab\n\ncd";
  for (const auto& [byte, line, column] :
       {std::tuple{0, 1, 1}, {1, 1, 2}, {2, 1, 3}, {3, 2, 1}, {4, 3, 1}, {6, 3, 3}, {99, 3, 3}}) {
    const TextPlace place = text_place(text, static_cast<size_t>(byte));
    EXPECT_EQ(place.line, line) << byte;
    EXPECT_EQ(place.column, static_cast<size_t>(column)) << byte;
  }
}

}  // namespace
}  // namespace megatrain
