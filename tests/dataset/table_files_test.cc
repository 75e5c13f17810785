// Tables by pyarrow, polars and datasets (make_table_goldens.py) are read as JSON Lines files of the same rows are.
#include <fstream>
#include <random>

#include "megatrain/dataset/json_rows.h"
#include "megatrain/dataset/sample_json.h"
#include "tests/dataset/dataset_fixture.h"

namespace megatrain {
namespace {

class TableFilesTest : public testing::DatasetTest {
 protected:
  static std::string golden(const std::string& name) { return in_repository("tests/dataset/goldens/tables/") + name; }
  static std::vector<std::string> tables() {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(golden(""))) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_directory() && !name.ends_with(".jsonl") && name != "million.parquet") all.push_back(name);
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  static SampleFile file(const std::string& path) { return {.path = path, .json = true, .kind = kind_of_file(path)}; }
  // The samples as JSON, each with its place in the file.
  static std::vector<std::pair<int64_t, nlohmann::ordered_json>> rows(const std::string& path, int64_t block_bytes,
                                                                      const ReadPlace& from = {}) {
    std::vector<std::pair<int64_t, nlohmann::ordered_json>> all;
    SampleBlocks blocks({file(path)}, {block_bytes, kMiB, kMiB}, from);
    SampleBlock block;
    while (blocks.next(block)) {
      for (const RawSample& raw : block.samples) all.emplace_back(raw.line, parse_sample_json(block.good_text(raw)));
    }
    return all;
  }
  // Without Arrow, tables are refused with the command that helps.
  static void expect_refused_without_arrow(const std::string& path) {
    const std::string said = refusal([&] { open_dataset(path); });
    EXPECT_NE(said.find("run tools/install --arrow, or convert it to JSON Lines: python3 -c "), std::string::npos)
        << said;
  }
};

TEST_F(TableFilesTest, HaveTheRowsOfTheirJsonLinesWhateverTheBlocks) {
  EXPECT_GE(tables().size(), 20u);
  for (const std::string& name : tables()) {
    if (!has_arrow()) {
      expect_refused_without_arrow(golden(name));
      continue;
    }
    const std::string lines = golden(name.substr(0, name.rfind('.')) + ".jsonl");
    const auto expected = rows(lines, 4096);
    for (const int64_t bytes : {1, 300, 100000}) EXPECT_EQ(rows(golden(name), bytes), expected) << name << " " << bytes;
  }
}

TEST_F(TableFilesTest, AreContinuedBehindAnyBlock) {
  for (const std::string& name : tables()) {
    if (!has_arrow()) return expect_refused_without_arrow(golden(name));
    const auto all = rows(golden(name), 1);
    SampleBlocks blocks({file(golden(name))}, {700, kMiB, kMiB});
    SampleBlock block;
    size_t seen = 0;
    while (blocks.next(block)) {
      seen += block.samples.size();
      if (block.after.file > 0) break;
      EXPECT_EQ(rows(golden(name), 700, block.after),
                std::vector(all.begin() + static_cast<std::ptrdiff_t>(seen), all.end()))
          << name << " " << seen;
    }
    EXPECT_EQ(seen, all.size()) << name;
  }
}

TEST_F(TableFilesTest, GiveTheTokensOfTheirJsonLines) {
  for (const char* const name : {"messages-zstd", "sharegpt", "prompt", "documents-delta", "dictionary",
                                 "polars-messages", "datasets-messages"}) {
    const std::string table = golden(std::string(name) + ".parquet");
    if (!has_arrow()) {
      expect_refused_without_arrow(table);
      continue;
    }
    const SampleStore lines = tokenized(golden(std::string(name) + ".jsonl")), rows = tokenized(table);
    EXPECT_EQ(shown(rows), shown(lines)) << name;
    EXPECT_NE(rows.fingerprint(), lines.fingerprint()) << name;  // of other bytes
  }
}

TEST_F(TableFilesTest, AMillionRowsComeInOrder) {
  const std::string path = golden("million.parquet");
  if (!has_arrow()) return expect_refused_without_arrow(path);
  SampleBlocks blocks({file(path)}, {kMiB, kMiB, kMiB});
  SampleBlock block;
  int64_t row = 0;
  size_t largest = 0;
  while (blocks.next(block)) {
    largest = std::max(largest, block.bytes.size());
    for (const RawSample& raw : block.samples) {
      ASSERT_EQ(block.text(raw), fmt::format("{{\"text\": \"text {}\"}}", row % 20));
      ASSERT_EQ(raw.line, ++row);
    }
  }
  EXPECT_EQ(row, 1000000);
  EXPECT_LE(largest, size_t{kMiB});
}

TEST_F(TableFilesTest, CutOrChangedAnywhereAreReadOrRefusedAndNeverCrash) {
  std::mt19937 random(1);
  int refused = 0;
  for (const std::string name :
       {"messages-snappy.parquet", "nulls.parquet", "types.parquet", "dictionary.parquet", "polars-messages.parquet",
        "ipc-file.arrow", "ipc-stream.arrow", "polars-views.arrow", "ipc-dictionary.arrow"}) {
    if (!has_arrow()) return expect_refused_without_arrow(golden(name));
    const std::string whole = testing::read_bytes(golden(name));
    for (int round = 0; round < 150; ++round) {
      std::string damaged = whole;
      if (round % 3 == 0) damaged.resize(random() % whole.size());
      for (int flip = 0; round % 3 != 0 && flip < 1 + round % 4; ++flip)
        damaged[random() % damaged.size()] = static_cast<char>(random());
      const std::string path = write("damaged" + std::filesystem::path(name).extension().string(), damaged);
      try {
        SampleBlocks blocks({file(path)}, {4096, kMiB, kMiB});
        SampleBlock block;
        while (blocks.next(block)) {
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::bad_input) << name << " " << round << ": " << error.what();
        EXPECT_TRUE(std::string(error.what()).starts_with(path)) << error.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500);
}

TEST_F(TableFilesTest, ATruncatedOneIsRefusedInASentence) {
  const std::string whole = testing::read_bytes(golden("prompt.parquet"));
  const std::string path = write("a.parquet", whole.substr(0, whole.size() / 2));
  if (!has_arrow()) return expect_refused_without_arrow(path);
  const std::string said = refusal([&] { tokenized(path); });
  EXPECT_TRUE(said.starts_with(path + " cannot be read as Parquet: ")) << said;
  EXPECT_TRUE(said.ends_with("get it again, or convert it to JSON Lines.")) << said;
}

TEST_F(TableFilesTest, ABadRowIsNamedByItsNumber) {
  const std::string path = golden("nulls.parquet");
  if (!has_arrow()) return expect_refused_without_arrow(path);
  Dataset dataset = open_dataset(path);
  dataset.columns.text = "note";
  dataset.form = DatasetForm::text;
  const std::string said = refusal([&] { tokenized(dataset); });
  EXPECT_TRUE(said.starts_with(path + ":2: ")) << said;
}

TEST_F(TableFilesTest, WhatSaveToDiskWritesIsReadInTheOrderOfItsState) {
  const std::string folder = golden("saved");
  if (!has_arrow()) return expect_refused_without_arrow(folder);
  const Dataset train = open_dataset(folder);
  EXPECT_EQ(train.files, (std::vector<std::string>{folder + "/train/data-00000-of-00002.arrow",
                                                   folder + "/train/data-00001-of-00002.arrow"}));
  EXPECT_NE(split_sentence(train).find("chosen by dataset_dict.json"), std::string::npos) << split_sentence(train);
  EXPECT_EQ(shown(tokenized(train)), shown(tokenized(golden("messages-zstd.jsonl"))));
  EXPECT_EQ(tokenized(open_dataset(folder, "", DatasetUse::evaluate)).samples(), 5);
  EXPECT_EQ(tokenized(open_dataset(folder + "/test", "", DatasetUse::evaluate)).samples(), 5);  // by its own path
}

TEST_F(TableFilesTest, RowsOfGenerateAndEvalMayComeFromATable) {
  const std::string path = golden("prompt.parquet");
  if (!has_arrow()) return expect_refused_without_arrow(path);
  JsonRows rows(path);
  const auto row = rows.next();
  EXPECT_EQ(text_field(*row, "prompt"), "What is 0?");
  EXPECT_EQ(row->where, path + ":1: ");
}

}  // namespace
}  // namespace megatrain
