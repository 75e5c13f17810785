#include "megatrain/dataset/splits.h"

#include "tests/dataset/dataset_fixture.h"

namespace megatrain {
namespace {

using Names = std::vector<std::string>;
using Splits = std::map<std::string, Names>;

class SplitsTest : public testing::DatasetTest {
 protected:
  // The splits in a folder whose own path contains the names of other splits.
  Splits splits(const Names& files) const {
    const std::string folder = "/dev/base-test";
    Names paths;
    for (const std::string& file : files) paths.push_back(folder + "/" + file);
    Splits found;
    for (const Split& split : splits_of(folder, paths)) {
      for (const std::string& file : split.files) found[split.name].push_back(file.substr(folder.size() + 1));
    }
    return found;
  }
};

// Equals what `datasets` 5.2 gives for the same names (get_data_patterns), except for upper case.
TEST_F(SplitsTest, AreToldByNamesAsTheDatasetsLibraryTellsThem) {
  EXPECT_EQ(splits({"a.jsonl", "b/c.jsonl", "constraint.jsonl", "latest.jsonl"}), Splits{});
  EXPECT_EQ(splits({"other.jsonl", "sub/my-dev.jsonl", "test.jsonl", "train.jsonl"}),
            (Splits{{"train", {"train.jsonl"}}, {"validation", {"sub/my-dev.jsonl"}}, {"test", {"test.jsonl"}}}));
  EXPECT_EQ(splits({"evaluation.jsonl", "my.val.jsonl", "training_0.jsonl", "x2test3.jsonl"}),
            (Splits{{"train", {"training_0.jsonl"}},
                    {"validation", {"my.val.jsonl"}},
                    {"test", {"evaluation.jsonl", "x2test3.jsonl"}}}));
  EXPECT_EQ(splits({"eval_train.jsonl", "train-2.jsonl"}),
            (Splits{{"train", {"eval_train.jsonl", "train-2.jsonl"}}, {"test", {"eval_train.jsonl"}}}));
  EXPECT_EQ(
      splits({"a-test/x.jsonl", "sub/dev2/deep/x.jsonl", "train.jsonl", "train/test.jsonl"}),
      (Splits{
          {"train", {"train/test.jsonl"}}, {"validation", {"sub/dev2/deep/x.jsonl"}}, {"test", {"a-test/x.jsonl"}}}));
  EXPECT_EQ(splits({"data/random-00000-of-00001.jsonl", "data/test.jsonl", "data/train-00000-of-00002.jsonl",
                    "data/train-00001-of-00002.jsonl", "test.jsonl"}),
            (Splits{{"train", {"data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl"}},
                    {"random", {"data/random-00000-of-00001.jsonl"}}}));
  EXPECT_EQ(splits({"data/test_sft-00000-of-00002-abc.jsonl", "data/train_sft-00000-of-00002.jsonl"}),
            (Splits{{"test_sft", {"data/test_sft-00000-of-00002-abc.jsonl"}},
                    {"train_sft", {"data/train_sft-00000-of-00002.jsonl"}}}));
  EXPECT_EQ(splits({"x/data/odd-00000-of-00002.jsonl", "x/data/train-00000-of-00002.jsonl"}),
            (Splits{{"train", {"x/data/train-00000-of-00002.jsonl"}}}));
  EXPECT_EQ(splits({"Test.jsonl", "TRAIN.jsonl"}), (Splits{{"train", {"TRAIN.jsonl"}}, {"test", {"Test.jsonl"}}}));
}

TEST_F(SplitsTest, AFolderIsTrainedOnAsItsTrainSplitAndEvaluatedAsTheOthers) {
  for (const char* const name : {"f/train.jsonl", "f/test.jsonl", "f/extra.jsonl"}) write(name, "{}");
  const Dataset train = open_dataset(path("f"));
  EXPECT_EQ(train.files, Names{path("f/train.jsonl")});
  const std::string said = split_sentence(train);
  for (const char* const part : {"the train split", "f/test.jsonl", "f/extra.jsonl"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_EQ(open_dataset(path("f"), "", DatasetUse::evaluate).files, Names{path("f/test.jsonl")});
  write("f/dev.jsonl", "{}");
  const Dataset eval = open_dataset(path("f"), "", DatasetUse::evaluate);
  EXPECT_EQ(eval.files, Names{path("f/dev.jsonl")});
  EXPECT_NE(split_sentence(eval).find("f/test.jsonl"), std::string::npos);
  EXPECT_EQ(open_dataset(path("f/test.jsonl")).files, Names{path("f/test.jsonl")});  // a file named explicitly is read

  for (const char* const name : {"g/train-0.jsonl", "g/train-1.jsonl"}) write(name, "{}");
  EXPECT_EQ(open_dataset(path("g")).files.size(), 2u);
  EXPECT_EQ(split_sentence(open_dataset(path("g"))), "");
}

TEST_F(SplitsTest, AFolderWithoutTheSplitIsRefusedWithTheFilesToChooseFrom) {
  for (const char* const name : {"f/test.jsonl", "f/dev.jsonl", "f/a.jsonl"}) write(name, "{}");
  const std::string train = refusal([&] { open_dataset(path("f")); });
  for (const char* const part : {"no train split", "test.jsonl", "dev.jsonl"})
    EXPECT_NE(train.find(part), std::string::npos) << train;
  write("g/train.jsonl", "{}");
  const std::string eval = refusal([&] { open_dataset(path("g"), "", DatasetUse::evaluate); });
  for (const char* const part : {"no validation or test split", "train.jsonl"})
    EXPECT_NE(eval.find(part), std::string::npos) << eval;
}

// A single rule decides for all files, so a file may have a split's name in its own and still be in none.
TEST_F(SplitsTest, ARefusedFolderNamesTheFilesThatLookLikeTheSplitFirst) {
  for (const char* const name : {"f/train/a.jsonl", "f/a.jsonl", "f/val.jsonl"}) write(name, "{}");
  for (const char* const name : {"g/data/train-00000-of-00001.jsonl", "g/dev.jsonl"}) write(name, "{}");
  for (const char* const name : {"h/train.jsonl", "h/test.orc"}) write(name, "{}");
  for (const auto& [folder, part] :
       std::map<std::string, std::string>{{"f", path("f/val.jsonl") + ", " + path("f/a.jsonl")},
                                          {"g", path("g/dev.jsonl")},
                                          {"h", path("h/test.orc")}}) {
    const std::string said = refusal([&, &name = folder] { open_dataset(path(name), "", DatasetUse::evaluate); });
    EXPECT_NE(said.find(part), std::string::npos) << said;
  }
}

TEST_F(SplitsTest, OtherSplitsAreNoPartOfTheTokenisedDataset) {
  const std::string row = R"({"prompt": "Q", "completion": ")";
  write("f/train.jsonl", row + "A\"}\n");
  const std::string all = tokenized(path("f")).fingerprint();
  write("f/test.jsonl", row + "B\"}\n");
  EXPECT_EQ(tokenized(path("f")).samples(), 1);
  EXPECT_EQ(tokenized(path("f")).fingerprint(), all);
  const Dataset eval = open_dataset(path("f"), "", DatasetUse::evaluate);
  EXPECT_NE(tokenized(eval).fingerprint(), all);
}

// LLaMA-Factory trains on all files in a folder that dataset_info.json names.
TEST_F(SplitsTest, AFolderThatLlamaFactoryNamesIsReadWholeWithAWarning) {
  for (const char* const name : {"info/f/train.jsonl", "info/f/test.jsonl"}) write(name, "{}");
  write("info/dataset_info.json", R"({"d": {"file_name": "f"}})");
  const Dataset dataset = open_dataset("d", path("info"));
  EXPECT_EQ(dataset.files.size(), 2u);
  EXPECT_NE(split_sentence(dataset).find("f/test.jsonl"), std::string::npos);
  EXPECT_EQ(split_sentence(open_dataset("d", path("info"), DatasetUse::evaluate)), "");
}

}  // namespace
}  // namespace megatrain
