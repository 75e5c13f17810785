// Dataset folders as people have them: each is read as its row says, or refused with the cure.
#include <algorithm>

#include "megatrain/dataset/described_splits.h"
#include "megatrain/dataset/file_kind.h"
#include "megatrain/tables/arrow/tables.h"
#include "tests/dataset/dataset_fixture.h"
#include "tests/support/hub_folder.h"

namespace megatrain {
namespace {

using Names = std::vector<std::string>;

struct FolderCase {
  const char* what;
  std::map<std::string, std::string> files;  // name to text; empty text: a row
  Names train, eval;                         // what is read; empty: refused
  std::string refused_train, refused_eval;   // a part of the refusal
  DatasetPart part = {};
};

std::map<std::string, std::string> named(const Names& names) {
  std::map<std::string, std::string> files;
  for (const std::string& name : names) files[name] = "";
  return files;
}

std::string card(const std::string& configs) { return "---\nlicense: mit\nconfigs:\n" + configs + "---\n# About\n"; }

const std::string kCard = card(
    "- config_name: default\n  data_files:\n  - split: train\n    path: data/train-*\n  - split: test\n    path: "
    "data/test-*\n");
const std::string kTwo = card(
    "- config_name: en\n  data_files: en/*.jsonl\n- config_name: de\n  data_files:\n  - split: train\n    path: "
    "[de/a.jsonl, de/b.jsonl]\n");
const std::string kState = R"({"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}], "_split": "train"})";
constexpr const char* kNoEval = "no validation or test split";

const std::vector<FolderCase> kCases = {
    {"one file", named({"a.jsonl"}), {"a.jsonl"}, {"a.jsonl"}},
    {"files in folders", named({"a/x.jsonl", "b/y.jsonl"}), {"a/x.jsonl", "b/y.jsonl"}, {"a/x.jsonl", "b/y.jsonl"}},
    {"train beside test", named({"train.jsonl", "test.jsonl"}), {"train.jsonl"}, {"test.jsonl"}},
    {"train beside validation", named({"train.json", "validation.json"}), {"train.json"}, {"validation.json"}},
    {"train beside dev", named({"train.jsonl", "dev.jsonl"}), {"train.jsonl"}, {"dev.jsonl"}},
    {"train beside eval", named({"train_1.jsonl", "eval_1.jsonl"}), {"train_1.jsonl"}, {"eval_1.jsonl"}},
    {"validation goes before test", named({"train.jsonl", "test.jsonl", "val.jsonl"}), {"train.jsonl"}, {"val.jsonl"}},
    {"split folders", named({"train/a.jsonl", "test/a.jsonl"}), {"train/a.jsonl"}, {"test/a.jsonl"}},
    {"train alone", named({"train.jsonl"}), {"train.jsonl"}, {}, "", kNoEval},
    {"test alone", named({"test.jsonl"}), {}, {"test.jsonl"}, "no train split"},
    {"shards",
     named({"train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"}),
     {"train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"},
     {},
     "",
     kNoEval},
    {"a missing shard", named({"a-00000-of-00002.jsonl"}), {}, {}, "missing: ", "missing: "},
    {"gzip", named({"a.jsonl.gz", "b.jsonl.gz"}), {"a.jsonl.gz", "b.jsonl.gz"}, {"a.jsonl.gz", "b.jsonl.gz"}},
    {"zstd shards of a split",
     named({"train-00000-of-00001.jsonl.zst", "test-00000-of-00001.jsonl.zst"}),
     {"train-00000-of-00001.jsonl.zst"},
     {"test-00000-of-00001.jsonl.zst"}},
    {"CSV with a description", named({"README.md", "train.csv", "test.csv"}), {"train.csv"}, {"test.csv"}},
    {"TSV", named({"a.tsv"}), {"a.tsv"}, {"a.tsv"}},
    {"compressed CSV", named({"a.csv.gz"}), {"a.csv.gz"}, {"a.csv.gz"}},
    {"Parquet of the hub",
     named({"README.md", "data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"}),
     {"data/train-00000-of-00001.parquet"},
     {"data/test-00000-of-00001.parquet"}},
    {"Parquet without splits",
     named({"0000.parquet", "0001.parquet"}),
     {"0000.parquet", "0001.parquet"},
     {"0000.parquet", "0001.parquet"}},
    {"compressed Parquet", named({"a.parquet.gz"}), {}, {}, "unpack it with gunzip", "unpack it with gunzip"},
    {"Feather", named({"a.feather"}), {"a.feather"}, {"a.feather"}},
    {"texts", named({"a.txt", "b.md"}), {"a.txt", "b.md"}, {"a.txt", "b.md"}},
    {"compressed texts", named({"a.txt.gz"}), {"a.txt.gz"}, {"a.txt.gz"}},
    {"texts beside samples", named({"a.jsonl", "notes.txt"}), {"a.jsonl"}, {"a.jsonl"}},
    {"two kinds of rows", named({"a.jsonl", "a.parquet"}), {}, {}, "the same samples twice", "the same samples twice"},
    {"two kinds in two splits", named({"train.jsonl", "test.csv"}), {"train.jsonl"}, {"test.csv"}},
    {"an archive", named({"README.md", "data.tar.gz"}), {}, {}, "unpack it with tar", "unpack it with tar"},
    {"a spreadsheet", named({"README.md", "a.xlsx"}), {}, {}, "pandas.read_excel", "pandas.read_excel"},
    {"nothing", named({"image.png"}), {}, {}, "has no samples", "has no samples"},
    {"hidden files alone", named({".a.jsonl"}), {}, {}, "has no samples", "has no samples"},
    {"upper case", named({"TRAIN.JSONL", "Test.jsonl"}), {"TRAIN.JSONL"}, {"Test.jsonl"}},
    {"saved by datasets",
     {{"state.json", kState}, {"dataset_info.json", "{}"}, {"a.arrow", ""}, {"b.arrow", ""}, {"cache-1.arrow", ""}},
     {"b.arrow", "a.arrow"},
     {"b.arrow", "a.arrow"}},
    {"saved by datasets, incomplete",
     {{"state.json", kState}, {"a.arrow", ""}},
     {},
     {},
     "names files that do not exist",
     "names files that do not exist"},
    {"saved splits",
     {{"dataset_dict.json", R"({"splits": ["train", "test"]})"},
      {"train/state.json", R"({"_data_files": [{"filename": "a.arrow"}]})"},
      {"train/a.arrow", ""},
      {"test/state.json", R"({"_data_files": [{"filename": "a.arrow"}]})"},
      {"test/a.arrow", ""}},
     {"train/a.arrow"},
     {"test/a.arrow"}},
    {"the library's cache beside a table",
     named({"x-train.arrow", "cache-0f.arrow"}),
     {"x-train.arrow"},
     {},
     "",
     kNoEval},
    {"a card",
     {{"README.md", kCard}, {"data/train-a.jsonl", ""}, {"data/test-a.jsonl", ""}, {"stats.json", "{}"}},
     {"data/train-a.jsonl"},
     {"data/test-a.jsonl"}},
    {"a card without a file that it names",
     {{"README.md", kCard}, {"data/train-a.jsonl", ""}},
     {},
     {},
     "download it again",
     "download it again"},
    {"a card of two subsets",
     {{"README.md", kTwo}, {"en/a.jsonl", ""}, {"de/a.jsonl", ""}, {"de/b.jsonl", ""}},
     {},
     {},
     "has several subsets and no default: en, de; name one",
     "has several subsets"},
    {"a subset",
     {{"README.md", kTwo}, {"en/a.jsonl", ""}, {"de/a.jsonl", ""}, {"de/b.jsonl", ""}},
     {"de/a.jsonl", "de/b.jsonl"},
     {},
     "",
     kNoEval,
     {.subset = "de"}},
    {"a subset that the card does not have",
     {{"README.md", kTwo}, {"en/a.jsonl", ""}},
     {},
     {},
     "it has no subset \"fr\", but en, de",
     "it has no subset",
     {.subset = "fr"}},
    {"a split by its name",
     named({"data/train_sft-00000-of-00001.jsonl", "data/train_gen-00000-of-00001.jsonl"}),
     {"data/train_gen-00000-of-00001.jsonl"},
     {"data/train_gen-00000-of-00001.jsonl"},
     "",
     "",
     {.split = "train_gen"}},
    {"splits of other names",
     named({"data/train_sft-00000-of-00001.jsonl", "data/train_gen-00000-of-00001.jsonl"}),
     {},
     {},
     "split: train_gen",
     kNoEval},
};

class DatasetFoldersTest : public testing::DatasetTest {
 protected:
  void expect(const FolderCase& one, DatasetUse use, const Names& files, const std::string& refused) {
    SCOPED_TRACE(fmt::format("{} ({})", one.what, use == DatasetUse::train ? "train" : "evaluate"));
    Names expected;
    for (const std::string& name : files) expected.push_back(path("f/" + name));
    Names read;
    const std::string said = refusal([&] { read = open_dataset(path("f"), "", use, one.part).files; });
    const bool arrow = std::any_of(files.begin(), files.end(), [](const std::string& name) {
      const FileKind kind = kind_of_file(name);
      return kind == FileKind::parquet || kind == FileKind::arrow;
    });
    if (files.empty() || (arrow && !has_arrow())) {
      EXPECT_NE(said.find(files.empty() ? refused : "tools/install --arrow"), std::string::npos) << said;
      EXPECT_FALSE(said.empty());
    } else {
      EXPECT_EQ(said, "");
      EXPECT_EQ(read, expected);
    }
  }
};

TEST_F(DatasetFoldersTest, AreReadOrRefusedWithTheCure) {
  EXPECT_GE(kCases.size(), 40u);
  for (const FolderCase& one : kCases) {
    std::filesystem::remove_all(path("f"));
    for (const auto& [name, text] : one.files) write("f/" + name, text.empty() ? "{}" : text);
    expect(one, DatasetUse::train, one.train, one.refused_train);
    expect(one, DatasetUse::evaluate, one.eval, one.refused_eval);
  }
}

TEST_F(DatasetFoldersTest, ASplitThatIsNotThereIsRefusedWithThoseThatAre) {
  write("f/train.jsonl", "{}");
  const std::string said = refusal([&] { open_dataset(path("f"), "", DatasetUse::train, {.split = "dev"}); });
  EXPECT_NE(said.find("has no split \"dev\": its file names say train ("), std::string::npos) << said;
}

TEST_F(DatasetFoldersTest, ACardsPatternsMatchAsTheLibraryMatchesThem) {
  EXPECT_TRUE(fits_glob("data/train-00000.parquet", "data/train-*"));
  EXPECT_FALSE(fits_glob("data/x/train-00000.parquet", "data/train-*"));
  EXPECT_TRUE(fits_glob("data/x/train-0.parquet", "data/**/train-*"));
  EXPECT_TRUE(fits_glob("data/train-0.parquet", "**/*.parquet"));
  EXPECT_TRUE(fits_glob("a.jsonl", "**"));
  EXPECT_TRUE(fits_glob("a1.jsonl", "a[0-9].json?"));
  EXPECT_FALSE(fits_glob("b/a.jsonl", "*.jsonl"));
}

TEST_F(DatasetFoldersTest, AHeldOutSplitIsFoundWhereThereIsOne) {
  for (const char* const name : {"f/train.jsonl", "f/dev.jsonl", "g/a.jsonl"}) write(name, "{}");
  EXPECT_EQ(open_held_out(path("f"), "", "")->files, Names{path("f/dev.jsonl")});
  EXPECT_FALSE(open_held_out(path("g"), "", ""));
  EXPECT_FALSE(open_held_out(path("f/train.jsonl"), "", ""));
}

TEST_F(DatasetFoldersTest, ANameOfTheHubIsReadFromItsCache) {
  const std::string snapshot = "hub/datasets--Org--set/snapshots/abc/";
  Variables variables;
  variables.set("HF_HUB_CACHE", path("hub"));
  write("hub/datasets--Org--set/refs/main", "abc");
  write(snapshot + "README.md", kCard);
  write("hub/datasets--Org--set/blobs/1", "{}");
  std::filesystem::create_directories(path(snapshot + "data"));
  for (const char* const name : {"data/train-0.jsonl", "data/test-0.jsonl"})
    std::filesystem::create_symlink("../../../blobs/1", path(snapshot + name));
  EXPECT_EQ(open_dataset("Org/set").files, Names{path(snapshot + "data/train-0.jsonl")});
  EXPECT_EQ(open_held_out("Org/set", "", "")->files, Names{path(snapshot + "data/test-0.jsonl")});
  const std::string absent = refusal([&] { open_dataset("Org/other"); });
  EXPECT_NE(absent.find("'hf download Org/other --repo-type dataset'"), std::string::npos) << absent;
  write("hub/datasets--Org--set/blobs/2.incomplete", "");
  EXPECT_NE(refusal([&] { open_dataset("Org/set"); }).find("is incomplete"), std::string::npos);
}

}  // namespace
}  // namespace megatrain
