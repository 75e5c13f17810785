#include "megatrain/dataset/sample_blocks.h"

#include <algorithm>

#include "tests/dataset/dataset_fixture.h"

namespace megatrain {
namespace {

using Texts = std::vector<std::string>;

class SampleBlocksTest : public testing::DatasetTest {
 protected:
  // "FILE:LINE text" for every sample, or "FILE:LINE! what" for a bad one. Checks that continuing after each block
  // gives the rest, and that offsets are those of the file.
  Texts read(const std::vector<SampleFile>& files, const BlockLimits& limits, const ReadPlace& from = {}) {
    Texts all;
    std::vector<std::pair<size_t, ReadPlace>> places;
    SampleBlocks blocks(files, limits, from);
    SampleBlock block;
    largest_ = 0;
    while (blocks.next(block)) {
      largest_ = std::max(largest_, block.bytes.size());
      for (const RawSample& raw : block.samples) {
        const std::string text(block.text(raw));
        all.push_back(fmt::format("{}:{}{} {}", raw.file, raw.line, raw.bad.empty() ? "" : "!",
                                  raw.bad.empty() ? text : raw.bad));
        const std::string bytes = testing::read_bytes(files[static_cast<size_t>(raw.file)].path);
        if (raw.bad.empty() && raw.offset >= 0) {
          EXPECT_EQ(bytes.substr(static_cast<size_t>(raw.offset), text.size()), text);
        }
      }
      places.emplace_back(all.size(), block.after);
    }
    if (from == ReadPlace{}) {
      for (const auto& [count, place] : places) {
        EXPECT_EQ(read(files, limits, place), Texts(all.begin() + static_cast<std::ptrdiff_t>(count), all.end()));
      }
    }
    return all;
  }
  // Checks that the result does not depend on the block size.
  Texts read_all_ways(const std::vector<SampleFile>& files, int64_t sample_bytes = 1000,
                      int64_t document_bytes = 1000) {
    const Texts all = read(files, {4096, sample_bytes, document_bytes});
    for (const int64_t bytes : {1, 2, 3, 7, 16, 33, 64}) {
      EXPECT_EQ(read(files, {bytes, sample_bytes, document_bytes}), all) << bytes;
    }
    return all;
  }
  size_t largest_ = 0;
};

TEST_F(SampleBlocksTest, LinesOfSeveralFilesComeInOrderWhateverTheBlocks) {
  EXPECT_EQ(read_all_ways({{write("a.jsonl", "{1}\n\n{22}\r\n   \n{333}"), true},
                           {write("b.jsonl", ""), true},
                           {write("c.jsonl", "\n \n"), true},
                           {write("d.jsonl", "\xEF\xBB\xBF{4}\n"), true}}),
            (Texts{"0:1 {1}", "0:3 {22}", "0:5 {333}", "3:1 {4}"}));
}

TEST_F(SampleBlocksTest, ElementsOfAnArrayAreCutOutsideOfStringsAndBrackets) {
  EXPECT_EQ(
      read_all_ways(
          {{write("a.json", "\xEF\xBB\xBF \n[ {\"a\": \"],\\\"\", \"b\": [1, {\"c\": 2}]},\n\n{} ,\n3]\n \n"), true},
           {write("b.json", "[]"), true},
           {write("c.json", "[\n{\"x\"\n:1}]"), true}}),
      (Texts{"0:2 {\"a\": \"],\\\"\", \"b\": [1, {\"c\": 2}]}", "0:4 {} ", "0:5 3", "2:2 {\"x\"\n:1}"}));
}

TEST_F(SampleBlocksTest, ABrokenArrayIsBadWhereItBreaks) {
  EXPECT_EQ(read_all_ways({{write("a.json", "[{},\n{\"a\": [1}"), true}}),
            (Texts{"0:1 {}", "0:2! the file ends inside this element of a JSON array; complete or remove it"}));
  EXPECT_EQ(read_all_ways({{write("a.json", "[{},\n"), true}}),
            (Texts{"0:1 {}", "0:2! the file ends inside a JSON array; close it with ]"}));
  EXPECT_EQ(read_all_ways({{write("a.json", "["), true}}),
            (Texts{"0:1! the file ends inside a JSON array; close it with ]"}));
  EXPECT_EQ(read_all_ways({{write("a.json", "[{},\n]"), true}}),
            (Texts{"0:1 {}", "0:2! the JSON array ends after a comma; remove it"}));
  EXPECT_EQ(
      read_all_ways({{write("a.json", "[{}]\n\n{}"), true}}),
      (Texts{"0:1 {}", "0:3! something follows the end of the JSON array; remove it, or put one object on each line"}));
}

TEST_F(SampleBlocksTest, AnObjectOverSeveralLinesIsBadWhereItBegins) {
  const Texts read = read_all_ways({{write("a.json", "{\n  \"text\": \"a\"\n}\n"), true}});
  ASSERT_FALSE(read.empty());
  EXPECT_EQ(read[0].find("0:1! an object spans several lines; put each object on one line"), 0u) << read[0];
}

TEST_F(SampleBlocksTest, ALineBeyondTheBoundIsPassedOverAndBad) {
  const std::string bad = "! the line is longer than 20 B, the most a sample may have; split it";
  EXPECT_EQ(read_all_ways({{write("a.jsonl", "{1}\n" + std::string(5000, 'x') + "\n{2}\r\n" + std::string(20, 'y') +
                                                 "\r\n" + std::string(21, 'z')),
                            true}},
                          20),
            (Texts{"0:1 {1}", "0:2" + bad, "0:3 {2}", "0:4 " + std::string(20, 'y'), "0:5" + bad}));
  EXPECT_LE(largest_, 64u);
}

TEST_F(SampleBlocksTest, AnElementBeyondTheBoundIsPassedOverAndBad) {
  const std::string bad = "! the array's element is longer than 20 B, the most a sample may have; split it";
  EXPECT_EQ(read_all_ways({{write("a.json", "[1,\n\"" + std::string(5000, ',') + "\",\n2,\"" + std::string(18, 'y') +
                                                "\",\n\"" + std::string(19, 'z') + "\"]"),
                            true}},
                          20),
            (Texts{"0:1 1", "0:2" + bad, "0:3 2", "0:3 \"" + std::string(18, 'y') + "\"", "0:4" + bad}));
  EXPECT_EQ(read_all_ways({{write("b.json", "[1," + std::string(100, ' ') + "\n[" + std::string(30, '3')), true}}, 20),
            (Texts{"0:1 1", "0:2" + bad}));
}

TEST_F(SampleBlocksTest, ALongTextIsCutAtLinesElseAtSpacesElseBetweenCharacters) {
  EXPECT_EQ(read_all_ways({{write("a.txt", "one\ntwo\nthree\n"), false}}, 1000, 9),
            (Texts{"0:1 one\ntwo\n", "0:3 three\n"}));
  EXPECT_EQ(read_all_ways({{write("a.txt", "one two three"), false}}, 1000, 9), (Texts{"0:1 one two", "0:1  three"}));
  EXPECT_EQ(read_all_ways({{write("a.txt", "ééééé"), false}}, 1000, 5), (Texts{"0:1 éé", "0:1 éé", "0:1 é"}));
}

TEST_F(SampleBlocksTest, FilesThatAreNoTextAreRefusedByTheirFirstBytes) {
  const auto said = [&](const std::string& file) { return refusal([&] { read({{file, true}}, {64, 64, 64}); }); };
  const std::string table = write("b.jsonl", "PAR1zzzz");
  EXPECT_EQ(said(table),
            table + " is a table by its first bytes (PAR1), but not by its name; rename it to end in .parquet.");
  EXPECT_EQ(said(write("a.jsonl", std::string("PK\x03\x04", 4))),
            path("a.jsonl") + " is a zip archive, which is not supported; unpack it with unzip.");
  EXPECT_EQ(said(write("t.jsonl", std::string(257, 'x') + "ustar")),
            path("t.jsonl") + " is a tar archive, which is not supported; unpack it with tar.");
  const std::string odd = write("a'$(touch b)'.jsonl",
                                "\xfd"
                                "7zXZ");
  const std::string quoted = "'" + path("a") + "'\\''$(touch b)'\\''.jsonl'";
  EXPECT_NE(said(odd).find("unpack it: unxz -c " + quoted + " > "), std::string::npos) << said(odd);
}

TEST_F(SampleBlocksTest, RowsOfCsvBecomeJsonObjectsOfTexts) {
  const SampleFile file{.path = write("a.csv", "\xEF\xBB\xBFq,\"a b\"\r\n7,\"x, \"\"y\"\"\nz\"\r\n\n007,\nlast,1"),
                        .json = true,
                        .kind = FileKind::csv};
  const Texts expected = {R"(0:2 {"q": "7", "a b": "x, \"y\"\nz"})", R"(0:5 {"q": "007", "a b": ""})",
                          R"(0:6 {"q": "last", "a b": "1"})"};
  for (const int64_t bytes : {1, 2, 7, 33, 4096}) EXPECT_EQ(read({file}, {bytes, 1000, 1000}), expected) << bytes;
  const SampleFile tabs{.path = write("a.tsv", "a\tb\n1,2\t3\n"), .json = true, .kind = FileKind::tsv};
  EXPECT_EQ(read({tabs}, {64, 64, 64}), Texts{R"(0:2 {"a": "1,2", "b": "3"})"});
  const SampleFile europe{.path = write("e.csv", "a;b\n1,2;3\n"), .json = true, .kind = FileKind::csv};
  EXPECT_EQ(read({europe}, {64, 64, 64}), Texts{R"(0:2 {"a": "1,2", "b": "3"})"});
}

TEST_F(SampleBlocksTest, RowsOfCsvThatDoNotFitTheHeaderAreBad) {
  const auto csv = [&](const std::string& text) {
    return read({{.path = write("a.csv", text), .json = true, .kind = FileKind::csv}}, {64, 100, 64});
  };
  EXPECT_EQ(csv("a,b\n1\n1,2,3\n\"x\"y,2\n"),
            (Texts{"0:2! the row has 1 cells, but the header 2; put cells that hold ',' in quotes",
                   "0:3! the row has 3 cells, but the header 2; put cells that hold ',' in quotes",
                   "0:4! something follows the quotes of cell 1: \"y,2\"; double the quotes inside a cell"}));
  EXPECT_EQ(csv("a,b\n1,\"2\n3,4\n"), Texts{"0:2! the quotes of cell 2 do not end"});
  EXPECT_EQ(csv("a,b\n1,\"" + std::string(300, 'x')),
            Texts{"0:2! the row is longer than 100 B, the most a sample may have; check its quotes"});
  EXPECT_NE(refusal([&] { csv("a,a\n1,2\n"); }).find(":1: the header has the column \"a\" twice"), std::string::npos);
}

}  // namespace
}  // namespace megatrain
