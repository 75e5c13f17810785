#include "megatrain/io/yaml.h"

#include <fmt/format.h>

#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

void expect_refused(std::initializer_list<std::string> words, const std::string& text) {
  SCOPED_TRACE(text.substr(0, 200));
  expect_error(ExitCode::bad_config, words, [&] { parse_yaml(text, "train.yaml"); });
}

// The number of values in the document with aliases expanded, as a reader of the result would visit them.
int64_t walk(const YAML::Node& node) {
  int64_t nodes = 1;
  if (node.IsSequence()) {
    for (const YAML::Node& item : node) nodes += walk(item);
  }
  if (node.IsMap()) {
    for (const auto& entry : node) nodes += walk(entry.first) + walk(entry.second);
  }
  return nodes;
}

// l0: &l0 [x, …], l1: &l1 [*l0, …], …: each line repeats the previous one `width` times.
std::string alias_tower(int lines, int width) {
  std::string text;
  for (int line = 0; line < lines; ++line) {
    text += fmt::format("l{0}: &l{0} [", line);
    for (int i = 0; i < width; ++i) text += (i == 0 ? "" : ", ") + (line == 0 ? "x" : fmt::format("*l{}", line - 1));
    text += "]\n";
  }
  return text;
}

TEST(Yaml, ReadsADocumentWithAliases) {
  const YAML::Node document = parse_yaml("a: &x {b: [1, 2]}\nc: *x\nd: &x 3\ne: *x\n", "train.yaml");
  EXPECT_EQ(document["c"]["b"][1].as<int>(), 2);
  EXPECT_EQ(document["e"].as<int>(), 3);
  EXPECT_TRUE(parse_yaml("", "train.yaml").IsNull());
}

TEST(Yaml, RefusesAnAliasInsideWhatItNamesWithItsLine) {
  expect_refused({"train.yaml:3:", "refers to a value that contains it"},
                 "data:\n  train:\n  - &a {path: x, columns: *a}\n");
  expect_refused({"train.yaml:1:", "refers to a value that contains it"}, "&a [*a]");
  expect_refused({"train.yaml:2:", "refers to a value that contains it"}, "a: &a\n  b: &b {c: {d: *a}}\n");
  expect_refused({"train.yaml:1:", "refers to a value that contains it"}, "&a {? *a : 1}");
}

TEST(Yaml, RefusesNulsWithTheirLine) {
  expect_refused({"train.yaml:2:", "NUL"}, "a: 1\ndata: {cache: \"cache\\0zzz\"}\n");
  expect_refused({"train.yaml:2:", "NUL"}, "a: 1\n\"b\\x00c\": 2\n");
  expect_refused({"train.yaml:3:", "NUL"}, std::string("a: 1\nb: 2\nc: x\0y\n", 17));
}

TEST(Yaml, RefusesTagsWithTheirLine) {
  for (const char* value :
       {"!foo 1", "!!binary aGVsbG8=", "!!null x", "!!set {a}", "!!str 1", "!x [1]", "!<tag:x> 2"}) {
    expect_refused({"train.yaml:2:", "tag", "not supported"}, std::string("a: 1\nb: ") + value + "\n");
  }
  EXPECT_EQ(parse_yaml("a: '1'\nb: \"x\"\nc: |\n  text\nd: {e: []}\n", "train.yaml")["b"].as<std::string>(), "x");
}

TEST(Yaml, RefusesAliasesThatExpandToTooMuchWithoutExpandingThem) {
  expect_refused({"train.yaml:", "more than 100000 values"}, alias_tower(12, 9));
  expect_refused({"train.yaml:", "more than 100000 values"}, alias_tower(30, 2));
  expect_refused({"train.yaml:", "32 levels"}, alias_tower(40, 1));
}

TEST(Yaml, CountsAliasesAsWhatTheyStandFor) {
  for (int lines = 1; lines < 10; ++lines) {
    for (int width = 1; width < 9; ++width) {
      const std::string text = alias_tower(lines, width);
      int64_t expanded = 0;
      try {
        expanded = walk(parse_yaml(text, "train.yaml"));
      } catch (const Error&) {
        int64_t nodes = 1, all = 1;
        for (int line = 0; line < lines; ++line) all += 1 + (nodes = 1 + width * nodes);
        EXPECT_GT(all, 100'000) << text;
      }
      EXPECT_LE(expanded, 100'000) << text;
    }
  }
}

TEST(Yaml, RefusesDeepNestingWithItsLine) {
  for (const std::string unit : {"[", "{a: ", "- ", "? ", "[{a: "}) {
    std::string text = "\n";
    for (int i = 0; i < 100'000; ++i) text += unit;
    expect_refused({"train.yaml:2:", "deeper than 32 levels"}, text);
  }
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += std::string(i, ' ') + "a:\n";
  expect_refused({"train.yaml:", "deeper than 32 levels"}, lines);
  EXPECT_NO_THROW(parse_yaml(std::string(32, '[') + std::string(32, ']'), "train.yaml"));
}

TEST(Yaml, RefusesATextThatIsTooLarge) {
  expect_refused({"train.yaml has 5000000 bytes", "4.00 MiB"}, std::string(5'000'000, '#'));
}

TEST(Yaml, RefusesASecondDocumentAndTextThatTheParserLeaves) {
  expect_refused({"train.yaml", "one YAML document"}, "a: 1\n---\nb: 2\n");
  expect_refused({"train.yaml", "one YAML document"}, ",a: 1\n");
  expect_refused({"train.yaml:3:", "not valid YAML"}, "a: 1\nb: [1\n");
}

}  // namespace
}  // namespace megatrain
