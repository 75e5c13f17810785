#include "megatrain/io/json.h"

#include <string>

#include <gtest/gtest.h>

namespace megatrain {
namespace {

// Calls every parse overload that json.h declares, with the same options.
template <typename Json, typename Check>
void with_every_form(const std::string& text, bool allow_exceptions, bool ignore_comments, Check&& check) {
  const auto keep_all_but_b = [](int, typename Json::parse_event_t event, Json& parsed) {
    return event != Json::parse_event_t::key || parsed != "b";
  };
  std::string changeable = text;
  check([&] { return Json::parse(std::string(text), keep_all_but_b, allow_exceptions, ignore_comments); });
  check([&] { return Json::parse(changeable, keep_all_but_b, allow_exceptions, ignore_comments); });
  check([&] { return Json::parse(text, keep_all_but_b, allow_exceptions, ignore_comments); });
  check([&] { return Json::parse(text.begin(), text.end(), keep_all_but_b, allow_exceptions, ignore_comments); });
}

template <typename Json>
class JsonParse : public ::testing::Test {};
using Kinds = ::testing::Types<nlohmann::json, nlohmann::ordered_json>;
TYPED_TEST_SUITE(JsonParse, Kinds);

TYPED_TEST(JsonParse, EveryFormObeysItsCallbackAndItsOptions) {
  const std::string text = R"({"c": 1, /* two */ "b": 2, "a": [3]})";
  with_every_form<TypeParam>(text, true, true, [](auto parse) {
    EXPECT_EQ(parse(), (TypeParam{{"c", 1}, {"a", {3}}}));
  });
  with_every_form<TypeParam>(text, false, false, [](auto parse) { EXPECT_TRUE(parse().is_discarded()); });
  with_every_form<TypeParam>(text, true, false, [](auto parse) { EXPECT_THROW(parse(), nlohmann::json::parse_error); });
}

TYPED_TEST(JsonParse, AnErrorSaysTheByte) {
  with_every_form<TypeParam>("[1, x]", true, false, [](auto parse) {
    try {
      parse();
      ADD_FAILURE() << "accepted";
    } catch (const nlohmann::json::parse_error& error) {
      EXPECT_EQ(error.byte, 5u);
    }
  });
}

TYPED_TEST(JsonParse, AnEmptyTextIsAnError) {
  with_every_form<TypeParam>("", false, false, [](auto parse) { EXPECT_TRUE(parse().is_discarded()); });
}

}  // namespace
}  // namespace megatrain
