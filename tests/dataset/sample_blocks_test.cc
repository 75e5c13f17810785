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
        if (raw.bad.empty()) {
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

TEST_F(SampleBlocksTest, CompressedFilesAreRefusedByTheirFirstBytes) {
  const std::string gzip = write("a.jsonl", "\x1f\x8b\x08zzzz");
  EXPECT_EQ(refusal([&] {
              read({{gzip, true}}, {64, 64, 64});
            }),
            gzip + " is compressed by gzip, which is not supported; unpack it: gunzip -c " + gzip + " > " + gzip +
                ".unpacked.jsonl, and give " + gzip + ".unpacked.jsonl.");
  const std::string table = write("b.jsonl", "PAR1zzzz");
  const std::string said = refusal([&] { read({{table, true}}, {64, 64, 64}); });
  EXPECT_NE(said.find("pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], "), std::string::npos) << said;
  EXPECT_NE(said.find("' " + table + " " + table + ".rows.jsonl, and give "), std::string::npos) << said;
  const std::string odd = write("a'$(touch b)'.jsonl", "\x1f\x8b\x08zzzz");
  const std::string quoted = "'" + path("a") + "'\\''$(touch b)'\\''.jsonl'";
  const std::string unpacked = refusal([&] { read({{odd, true}}, {64, 64, 64}); });
  EXPECT_NE(unpacked.find("unpack it: gunzip -c " + quoted + " > "), std::string::npos) << unpacked;
}

}  // namespace
}  // namespace megatrain
