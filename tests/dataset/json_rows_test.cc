#include "megatrain/dataset/json_rows.h"

#include "tests/dataset/dataset_fixture.h"

namespace megatrain {
namespace {

using Texts = std::vector<std::string>;

class JsonRowsTest : public testing::DatasetTest {
 protected:
  // "LINE object" of every row.
  Texts read(const std::string& text) const {
    Texts all;
    JsonRows rows(write("rows.jsonl", text));
    while (const auto row = rows.next()) {
      EXPECT_EQ(row->where, fmt::format("{}:{}: ", path("rows.jsonl"), row->line));
      all.push_back(fmt::format("{} {}", row->line, row->object.dump()));
    }
    EXPECT_FALSE(rows.next());
    return all;
  }
  // The error for a file whose second line is bad, without its location.
  std::string bad_line(const std::string& line) const {
    const std::string what = refusal([&] { read("{\"a\":1}\n" + line + "\n{\"a\":1}"); });
    const std::string where = path("rows.jsonl") + ":2: ";
    EXPECT_TRUE(what.starts_with(where)) << what;
    return what.substr(where.size());
  }
};

TEST_F(JsonRowsTest, AreReadAsDatasetsAreFromLinesAndFromAnArray) {
  EXPECT_EQ(read("\xEF\xBB\xBF{\"b\":1,\"a\":2}\r\n \n{}"), (Texts{R"(1 {"b":1,"a":2})", "3 {}"}));
  EXPECT_EQ(read("[\n{\"b\":1},\n\n{\"a\":\n2}]\n"), (Texts{R"(2 {"b":1})", R"(4 {"a":2})"}));
}

TEST_F(JsonRowsTest, AColumnThatIsNullIsNotThere) {
  EXPECT_EQ(read(R"({"messages":null,"prompt":"a","x":null,"y":[null]})"), (Texts{R"(1 {"prompt":"a","y":[null]})"}));
  EXPECT_EQ(read(R"({"a":null,"b":null})"), Texts{"1 {}"});
}

TEST_F(JsonRowsTest, MoreThanABlockHoldsAreReadInOrder) {
  std::string text;
  for (int i = 0; i < 9; ++i) text += fmt::format("{{\"n\":{},\"text\":\"{}\"}}\n", i, std::string(kMiB, 'a'));
  JsonRows rows(write("rows.jsonl", text));
  for (int i = 0; i < 9; ++i) EXPECT_EQ(rows.next()->object.at("n"), i);
  EXPECT_FALSE(rows.next());
}

TEST_F(JsonRowsTest, ABadOneIsNamedWithTheSentencesOfSamples) {
  EXPECT_EQ(bad_line("{\"a\": }"),
            "not valid JSON at column 7: unexpected '}'; expected '[', '{', or a literal; correct or remove it.");
  EXPECT_EQ(bad_line("{\"a\":1,\"a\":2}"), "duplicate key \"a\"; keep one of them.");
  EXPECT_EQ(bad_line("{\"a\":\"\xff\"}"), "byte 14 of the file, 0xff, is not UTF-8; convert the file to UTF-8.");
  EXPECT_EQ(bad_line("5"), "expected an object, but the row is a number.");
}

TEST_F(JsonRowsTest, AFileWithoutAnyIsRefused) {
  for (const char* const text : {"", "\n \n", "[]"}) {
    EXPECT_EQ(refusal([&] { read(text); }),
              path("rows.jsonl") + " has no rows; expected JSON objects, one per line or in an array");
  }
}

TEST_F(JsonRowsTest, FieldsOfAnotherKindAreNamedWithTheirPlace) {
  const JsonRow row{.where = "f:3: ", .line = 3, .object = {{"a", 1}, {"b", "text"}, {"messages", {{{"role", 1}}}}}};
  EXPECT_EQ(text_field(row, "b"), "text");
  EXPECT_EQ(refusal([&] { text_field(row, "a"); }), "f:3: \"a\" is a number; expected text");
  EXPECT_TRUE(refusal([&] { text_field(row, "c"); }).starts_with("f:3: it has no \"c\", found"));
  EXPECT_TRUE(refusal([&] { messages_field(row); }).starts_with("f:3: message 1 is"));
}

}  // namespace
}  // namespace megatrain
