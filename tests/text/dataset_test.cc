#include "megatrain/text/dataset/dataset.h"

#include "tests/text/dataset_fixture.h"

namespace megatrain {
namespace {

using testing::answer;
using testing::turn;
using Shown = std::vector<std::string>;
using Names = std::vector<std::string>;

class OpenDatasetTest : public testing::DatasetTest {
 protected:
  Dataset named(const std::string& entry) {
    write("info/dataset_info.json", "{\"d\": " + entry + "}");
    return open_dataset("d", path("info"));
  }
  // Without the beginning, which is the same for all.
  std::string refused(const std::string& entry) {
    const std::string what = refusal([&] { named(entry); });
    const std::string begin = path("info") + "/dataset_info.json: the dataset \"d\": ";
    EXPECT_TRUE(what.starts_with(begin)) << what;
    return what.substr(std::min(what.size(), begin.size()));
  }
};

TEST_F(OpenDatasetTest, AFolderIsItsJsonFilesElseItsTextsInOrder) {
  for (const char* const name :
       {"f/b.jsonl", "f/a/c.json", "f/README.md", "f/.git/x.json", "f/.hidden.json", "f/dataset_info.json"}) {
    write(name, "{}");
  }
  Dataset dataset = open_dataset(path("f"));
  EXPECT_EQ(dataset.files, (Names{path("f/a/c.json"), path("f/b.jsonl")}));
  EXPECT_EQ(dataset.passed_over, (Names{path("f/README.md"), path("f/dataset_info.json")}));
  EXPECT_EQ(dataset.name, path("f"));
  for (const char* const name : {"t/b.TXT", "t/a.md", "t/c.py"}) write(name, "x");
  EXPECT_EQ(open_dataset(path("t")).files, (Names{path("t/a.md"), path("t/b.TXT")}));
  EXPECT_EQ(open_dataset(path("t/c.py")).files, (Names{path("t/c.py")}));
}

TEST_F(OpenDatasetTest, WhatIsNotThereOrNotReadIsRefusedWithWhatToDo) {
  EXPECT_EQ(refusal([&] { open_dataset(path("none")); }),
            "there is no file or folder " + path("none") + "; check the path.");
  EXPECT_EQ(refusal([&] { open_dataset(write("a.jsonl.gz", "")); }),
            path("a.jsonl.gz") + " is compressed, which is not read; unpack it with gunzip.");
  write("p/a.parquet", "PAR1");
  EXPECT_EQ(refusal([&] { open_dataset(path("p")); }),
            path("p/a.parquet") +
                " is a Parquet file, which is not read; convert it to JSON Lines: "
                "pandas.read_parquet(FILE).to_json(OUT, orient=\"records\", lines=True, "
                "force_ascii=False).");
  write("e/a.png", "");
  EXPECT_EQ(refusal([&] { open_dataset(path("e")); }),
            "the folder " + path("e") +
                " holds no samples: expected .jsonl, .ndjson or .json files, or text (.txt .text .md .markdown .rst "
                ".tex); give another folder, or name a file of it.");
  EXPECT_EQ(refusal([&] { tokenized(write("empty.jsonl", "\n")); }),
            "the dataset " + path("empty.jsonl") + " has no sample; give files that hold some.");
}

TEST_F(OpenDatasetTest, AFormThatCannotBeToldIsRefusedWithTheKeysOfTheFirstSample) {
  const std::string what = refusal([&] { tokenized(write("a.jsonl", "{\"foo\":1,\"bar\":2}\n")); });
  EXPECT_TRUE(what.starts_with("the form of the dataset " + path("a.jsonl") + " cannot be told: " + path("a.jsonl") +
                               ":1 has the keys \"foo\", \"bar\"; expected {\"messages\""))
      << what;
  EXPECT_EQ(refusal([] { dataset_form("sharegtp"); }, ExitCode::bad_config),
            "\"sharegtp\" is no form of a dataset; expected detect, messages, sharegpt, alpaca, prompt or text.");
}

TEST_F(OpenDatasetTest, LlamaFactorysNamesComeWithTheirFormColumnsAndTags) {
  write("info/a.json", R"([{"instruction":"I","input":"J","output":"O","system":"not read"}])");
  EXPECT_EQ(shown(tokenized(named(R"({"file_name": "a.json"})"))), (Shown{turn("user", "I\nJ") + answer("O")}));
  EXPECT_EQ(
      shown(tokenized(named(
          R"({"file_name": "a.json", "columns": {"prompt": "input", "response": "output", "query": null, "system": "instruction"}})"))),
      (Shown{turn("system", "I") + turn("user", "J") + answer("O")}));
  write("info/s/1.json", R"([{"talk":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]}])");
  write("info/s/2.json", R"([{"talk":[{"role":"user","content":"R"},{"role":"assistant","content":"B"}]}])");
  EXPECT_EQ(shown(tokenized(
                named(R"({"file_name": "s", "formatting": "sharegpt", "columns": {"messages": "talk"}, "ranking": false,
                     "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", "system_tag": "system"}})"))),
            (Shown{turn("user", "Q") + answer("A"), turn("user", "R") + answer("B")}));
}

TEST_F(OpenDatasetTest, WhatLlamaFactoryHasAndWeDoNotIsRefusedInASentence) {
  write("info/a.json", "[]");
  EXPECT_EQ(refused(R"({"hf_hub_url": "org/name"})"),
            "\"hf_hub_url\" names a dataset of a hub; download it and give its files as \"file_name\".");
  EXPECT_EQ(refused(R"({"script_url": "x"})"),
            "\"script_url\" names a program that loads the dataset; write the dataset to a file and give it as "
            "\"file_name\".");
  EXPECT_EQ(refused(R"({"file_name": "a.json", "ranking": true})"),
            "\"ranking\" makes it one of preferences, which are not trained on.");
  EXPECT_EQ(refused(R"({"file_name": "a.json", "columns": {"images": "images"}})"),
            "\"images\" is a column of images; only text is trained on.");
  EXPECT_EQ(refused(R"({"file_name": "a.json", "columns": {"promt": "p"}})"),
            "\"columns\" has \"promt\", which is not known.");
  EXPECT_EQ(refused(R"({"file_name": "a.json", "formatting": "vicuna"})"),
            "\"formatting\" is \"vicuna\", where alpaca, sharegpt or openai is expected.");
  EXPECT_EQ(refused("{}"), "has to have a \"file_name\", of a file or folder beside dataset_info.json.");
  EXPECT_EQ(refusal([&] { named(R"({"file_name": "gone.json"})"); }),
            "there is no file or folder " + path("info/gone.json") + "; check the path.");
  EXPECT_EQ(refusal([&] { open_dataset("x", path("info")); }), "x is neither a file, a folder nor a dataset of " +
                                                                   path("info") +
                                                                   "/dataset_info.json, which has d; check the name.");
}

}  // namespace
}  // namespace megatrain
