#include "megatrain/io/json_file.h"

#include <fmt/format.h>

#include "tests/support/cpu_time.h"
#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

using nlohmann::json;

json read_text(const std::string& text) {
  TemporaryDirectory directory;
  write_bytes(directory / "config.json", text);
  return read_json_file(directory / "config.json");
}

TEST(JsonFile, ReadsValues) {
  const nlohmann::json json =
      read_text(R"({"hidden_size": 64, "eps": 1e-6, "list": [1, {"a": null}], "other": {"a": 1}})");
  EXPECT_EQ(json["hidden_size"], 64);
  EXPECT_EQ(json["eps"], 1e-6);
  EXPECT_TRUE(json["list"][1]["a"].is_null());
}

TEST(JsonFile, NamesFileLineAndByteOfASyntaxError) {
  expect_error(ExitCode::bad_input,
               {"config.json", "line 3, column 3 (byte 13)", "correct the file or download it again"},
               [] { read_text("{\n \"a\": 1,\n  b: 2\n}\n"); });
}

TEST(JsonFile, RefusesATextThatEndsEarly) {
  expect_error(ExitCode::bad_input, {"config.json", "not valid JSON", "line 2"}, [] { read_text("{\n\"a\": [1, 2"); });
  expect_error(ExitCode::bad_input, {"config.json", "not valid JSON"}, [] { read_text(""); });
}

TEST(JsonFile, RefusesDuplicateKeysOfOneObjectOnly) {
  expect_error(ExitCode::bad_input, {"config.json", "duplicate key \"a\""},
               [] { read_text(R"({"a": 1, "b": 2, "a": 1})"); });
  expect_error(ExitCode::bad_input, {"duplicate key \"b\""}, [] { read_text(R"({"a": [{"b": 1, "b": 2}]})"); });
  expect_error(ExitCode::bad_input, {"duplicate key \"a\""}, [] { read_text(R"({"a": {"a": 1}, "a": 2})"); });
  expect_error(ExitCode::bad_input, {"duplicate key \"a\""}, [] { read_text(R"({"a": 1, "\u0061": 2})"); });
  EXPECT_NO_THROW(read_text(R"({"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]})"));
}

TEST(JsonFile, RefusesTextAfterTheValue) {
  expect_error(ExitCode::bad_input, {"not valid JSON"}, [] { read_text("{} x"); });
  expect_error(ExitCode::bad_input, {"NUL byte", "line 1, column 3"}, [] { read_text(std::string("{}\0x", 4)); });
}

TEST(JsonFile, ReadsPythonsFloatsAsTransformersNamesThemAndLeavesTextsAlone) {
  const auto named = [](const char* value) { return json{{"__float__", value}}; };
  const json object = read_text(R"({"a": [0.0, Infinity, -Infinity], "\"NaN": "x\\", "b": NaN, "c": "Infinity"})");
  EXPECT_EQ(object.at("a"), json::array({0.0, named("Infinity"), named("-Infinity")}));
  EXPECT_EQ(object.at("\"NaN"), "x\\");
  EXPECT_EQ(object.at("b"), named("NaN"));
  EXPECT_EQ(object.at("c"), "Infinity");
  for (const char* text : {R"({"a": Infinityx})", R"({"a": +Infinity})", R"({"a": NaN NaN})", R"({"a": -NaN})", "\"\\"})
    expect_error(ExitCode::bad_input, {"not valid JSON"}, [&] { read_text(text); });
}

TEST(JsonFile, RefusesCommentsAndNumbersTooLarge) {
  expect_error(ExitCode::bad_input, {"not valid JSON"}, [] { read_text("{} // c"); });
  expect_error(ExitCode::bad_input, {"config.json", "number overflow"}, [] { read_text(R"({"a": 1e999})"); });
}

TEST(JsonFile, RefusesDeepNesting) {
  EXPECT_NO_THROW(read_text(std::string(64, '[') + std::string(64, ']')));
  expect_error(ExitCode::bad_input, {"config.json", "64 levels"},
               [] { read_text(std::string(65, '[') + std::string(65, ']')); });
}

TEST(JsonFile, NamesAFileThatIsNotThere) {
  TemporaryDirectory directory;
  expect_error(ExitCode::bad_input, {"config.json", "No such file"},
               [&] { read_json_file(directory / "config.json"); });
}

// A parser that scans all members whenever one ends takes minutes for these.
TEST(JsonFile, ManyMembersTakeTimeInProportion) {
  constexpr int kMembers = 200'000;
  std::string object = "{", list = "[";
  for (int i = 0; i < kMembers; ++i) {
    object += fmt::format("{}\"t{}\": {{\"a\": []}}", i == 0 ? "" : ", ", i);
    list += i == 0 ? "{}" : ", {}";
  }
  object += "}";
  list += "]";
  const double seconds = cpu_seconds([&] {
    EXPECT_EQ(parse_json(object, "o", "").size(), size_t{kMembers});
    EXPECT_EQ(parse_json(list, "l", "").size(), size_t{kMembers});
  });
  EXPECT_LT(seconds, 20);
}

}  // namespace
}  // namespace megatrain
