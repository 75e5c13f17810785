#include "megatrain/dataset/dataset.h"

#include "megatrain/dataset/dataset_list.h"
#include "tests/dataset/dataset_fixture.h"

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
  // The error message without its beginning, which is always the same.
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
            "no such file or folder: " + path("none") + "; check the path.");
  EXPECT_EQ(refusal([&] { open_dataset(write("a.jsonl.xz", "")); }),
            path("a.jsonl.xz") + " is compressed, which is not supported; unpack it with unxz.");
  write("p/a.orc", "ORC");
  EXPECT_EQ(
      refusal([&] { open_dataset(path("p")); }),
      path("p/a.orc") +
          " is an ORC file, which is not supported; convert it to JSON Lines: python3 -c 'import sys, pandas; "
          "pandas.read_orc(sys.argv[1]).to_json(sys.argv[2], orient=\"records\", lines=True, force_ascii=False)' " +
          path("p/a.orc") + " " + path("p/a.jsonl") + ", and give " + path("p/a.jsonl") + ".");
  write("e/a.png", "");
  EXPECT_EQ(refusal([&] { open_dataset(path("e")); }),
            "the folder " + path("e") +
                " has no samples: expected .jsonl, .jsonlines, .ndjson, .json, .parquet, .csv, .tsv or .arrow files, "
                "or text (.txt .text .md .markdown .rst .tex); give another folder, or a file.");
  EXPECT_EQ(refusal([&] { tokenized(write("empty.jsonl", "\n")); }),
            "the dataset " + path("empty.jsonl") + " has no samples; give files that have some.");
}

TEST_F(OpenDatasetTest, AFolderOfTablesThatAreNotReadIsRefusedAndNotItsDescriptionRead) {
  int number = 0;
  for (const char* const name : {"data/train.orc", "train.xlsx", "train.jsonl.xz", "data.tar", "data.tar.gz"}) {
    const std::string folder = fmt::format("f{}", number++);
    write(folder + "/README.md", "# About");
    write(folder + "/" + name, "x");
    const std::string what = refusal([&] { open_dataset(path(folder)); });
    EXPECT_TRUE(what.starts_with(path(folder + "/" + name) + " is ")) << what;
    EXPECT_NE(what.find("which is not supported; "), std::string::npos) << what;
  }
  for (const char* const name : {"m/README.md", "m/b.orc", "m/a.orc", "m/notes.txt"}) write(name, "x");
  const std::string what = refusal([&] { open_dataset(path("m")); });
  EXPECT_TRUE(what.starts_with("the folder " + path("m") + " has " + path("m/a.orc") + ", " + path("m/b.orc") +
                               " and no samples that are read; the first is an ORC file, which is not supported; "))
      << what;
}

TEST_F(OpenDatasetTest, FilesThatAFolderHasAndAreNotReadAreNamed) {
  for (const char* const name : {"j/a.jsonl", "j/README.md", "j/LICENSE", "j/state.json", "j/b.orc", "j/c.txt"})
    write(name, "{}");
  const std::string said = passed_over_sentence(open_dataset(path("j")));
  EXPECT_TRUE(said.ends_with(": " + path("j/b.orc") + ", " + path("j/c.txt"))) << said;
  for (const char* const name : {"k/a.jsonl", "k/README.md"}) write(name, "{}");
  EXPECT_EQ(passed_over_sentence(open_dataset(path("k"))), "");
}

TEST_F(OpenDatasetTest, ANameOfTheHubIsAnsweredWithTheCommandThatDownloadsIt) {
  const std::string command = "'hf download some-org/a_set --repo-type dataset'";
  EXPECT_NE(refusal([&] { open_dataset("some-org/a_set"); }).find(command), std::string::npos);
  write("info/dataset_info.json", "{}");
  EXPECT_NE(refusal([&] { open_dataset("some-org/a_set", path("info")); }).find(command), std::string::npos);
  EXPECT_NE(refusal([&] { open_dataset("s3://bucket/x"); }).find("does not download"), std::string::npos);
  for (const char* const missing : {"some-org/a.jsonl", "./org/name", "a/b/c", "name"})
    EXPECT_NE(refusal([&] { open_dataset(missing); }).find("no such file or folder: "), std::string::npos) << missing;
}

TEST_F(OpenDatasetTest, LlamaFactorysSecondFormIsRead) {
  const std::string row =
      R"({"messages": [{"role": "user", "content": [{"type": "text", "value": "Q"}], "loss_weight": 0.0},)"
      R"( {"role": "assistant", "content": [{"type": "text", "value": "A"}, {"type": "text", "value": "B"}],)"
      R"( "loss_weight": 1.0}]})";
  EXPECT_EQ(shown(tokenized(write("v1.jsonl", row + "\n"))), (Shown{turn("user", "Q") + answer("AB")}));
  const std::string image = R"({"messages": [{"role": "user", "content": [{"type": "image_url", "value": "a.jpg"}]}, )"
                            R"({"role": "assistant", "content": "A"}]})";
  EXPECT_NE(refusal([&] { tokenized(write("v2.jsonl", image + "\n")); }).find("a part of type \"image_url\""),
            std::string::npos);

  write("a.json", R"([{"instruction": "Q", "output": "A"}, {"instruction": "R", "output": "B"}])");
  write("list.yaml",
        "one:\n  path: " + path("a.json") + "\n  source: local\n  converter: alpaca\n  size: 1\n  weight: 2\n");
  const std::vector<Dataset> list = open_dataset_list(path("list.yaml"));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].files, (Names{path("a.json")}));
  EXPECT_EQ(list[0].form, DatasetForm::alpaca);
  EXPECT_EQ(list[0].most, 1);
  EXPECT_EQ(list[0].weight, 2);
  for (const auto& [text, part] :
       std::map<std::string, std::string>{{"a: {path: x, converter: pair}", "preferences"},
                                          {"a: {path: x, colour: red}", "unknown key"},
                                          {"a: {size: 1}", "has no path"},
                                          {"a: {path: x, split: test}", "only train is supported"},
                                          {"a: {path: x, size: many}", "size is 'many'"},
                                          {"- a", "is not a list of datasets"}})
    EXPECT_NE(refusal([&] { open_dataset_list(write("bad.yaml", text)); }).find(part), std::string::npos) << text;
}

TEST_F(OpenDatasetTest, AlpacasOwnPromptNeedsNoChatTemplateAndTrainsTheAnswer) {
  Dataset dataset = open_dataset(write("a.jsonl",
                                       "{\"instruction\":\"Do\",\"input\":\"\",\"output\":\"A\"}\n"
                                       "{\"instruction\":\"Do\",\"input\":\"this\",\"output\":\"B\"}\n"));
  dataset.form = DatasetForm::alpaca_prompt;
  const Shown got = shown(tokenized(dataset));
  ASSERT_EQ(got.size(), 2u);
  EXPECT_TRUE(
      got[0].starts_with("Below is an instruction that describes a task. Write a response that appropriately "
                         "completes the request.\n\n### Instruction:\nDo\n\n### Response:\n[A"))
      << got[0];
  EXPECT_TRUE(
      got[1].starts_with("Below is an instruction that describes a task, paired with an input that provides "
                         "further context. Write a response that appropriately completes the "
                         "request.\n\n### Instruction:\nDo\n\n### Input:\nthis\n\n### Response:\n[B"))
      << got[1];
  EXPECT_TRUE(got[0].ends_with("]")) << got[0];
}

TEST_F(OpenDatasetTest, JsonlinesFilesAreJsonLines) {
  EXPECT_EQ(shown(tokenized(write("a.jsonlines", "{\"question\":\"Q\",\"answer\":\"A\"}\n"))),
            (Shown{turn("user", "Q") + answer("A")}));
}

TEST_F(OpenDatasetTest, JsonLinesUnderTheNameOfTextAreRefusedUnlessAskedForAsText) {
  const std::string line = "{\"text\": \"a\"}\n";
  for (const auto& [name, text] :
       std::map<std::string, std::string>{{"a.dat", line + line},
                                          {"b", "\n" + line},
                                          {"c.txt", "\xEF\xBB\xBF" + line},
                                          {"d.jl", "[\n " + line + "]"},
                                          {"e.txt", "{\"text\": \"" + std::string(100'000, 'x') + "\"}\n"}}) {
    const std::string file = write(name, text);
    EXPECT_EQ(refusal([&] { tokenized(file); }), file +
                                                     " has the name of a text file, but its first line is JSON; rename "
                                                     "it to end in .jsonl, or give the dataset as {path: " +
                                                     file + ", format: text} to train on it as text.");
    Dataset as_text = open_dataset(file);
    as_text.form = DatasetForm::text;
    EXPECT_EQ(tokenized(as_text).samples(), 1);
    Dataset as_samples = open_dataset(file);
    as_samples.form = DatasetForm::prompt;
    EXPECT_NE(refusal([&] { tokenized(as_samples); }).find("it has no \"prompt\""), std::string::npos);
  }
  for (const char* const text :
       {"{not json}\n", "{ \"a\" is a set }\n", "{\n \"a\": 1\n}\n", "[1, 2]\n", "{{% if %}}", ""})
    EXPECT_EQ(tokenized(write("text.txt", std::string(text) + "prose")).samples(), 1) << text;
}

TEST_F(OpenDatasetTest, LlamaFactorysPretrainingSetsAreTexts) {
  const std::string eos = "<|endoftext|>";
  write("info/c4.jsonl", "{\"text\":\"one\",\"url\":\"u\"}\n{\"text\":\"two\",\"url\":\"v\"}\n");
  EXPECT_EQ(shown(tokenized(named(R"({"file_name": "c4.jsonl", "columns": {"prompt": "text"}})"))),
            (Shown{"[one" + eos + "]", "[two" + eos + "]"}));
  write("info/other.json", R"([{"content":"x"}])");
  EXPECT_EQ(shown(tokenized(named(R"({"file_name": "other.json", "columns": {"prompt": "content"}})"))),
            (Shown{"[x" + eos + "]"}));
  // Each line of a text file is a sample under the column "text".
  write("info/wiki.txt", "first line\n\nsecond: {line}\r\nthird");
  const SampleStore store = tokenized(named(R"({"file_name": "wiki.txt", "columns": {"prompt": "text"}})"));
  EXPECT_EQ(shown(store), (Shown{"[first line" + eos + "]", "[second: {line}" + eos + "]", "[third" + eos + "]"}));
  EXPECT_TRUE(store.is_text(0));
  EXPECT_EQ(store.place(1).line, 3);
  EXPECT_NE(tokenized(path("info/wiki.txt")).fingerprint(), store.fingerprint());  // there it is a single document
  EXPECT_NE(refused(R"({"file_name": "wiki.txt"})").find("is a text file, whose lines are its only column"),
            std::string::npos);
}

TEST_F(OpenDatasetTest, ColumnsThatAnEntryDoesNotNameAreNotRead) {
  write("info/a.json", R"([{"instruction":"I","input":"J","output":"O"}])");
  EXPECT_EQ(
      shown(tokenized(named(R"({"file_name": "a.json", "columns": {"prompt": "instruction", "response": "output"}})"))),
      (Shown{turn("user", "I") + answer("O")}));
}

TEST_F(OpenDatasetTest, AFormThatCannotBeToldIsRefusedWithTheKeysOfTheFirstSample) {
  const std::string what = refusal([&] { tokenized(write("a.jsonl", "{\"foo\":1,\"bar\":2}\n")); });
  EXPECT_TRUE(what.starts_with("cannot detect the format of " + path("a.jsonl") + ": " + path("a.jsonl") +
                               ":1 has the keys \"foo\", \"bar\"; expected {\"messages\""))
      << what;
  EXPECT_EQ(refusal([] { dataset_form("sharegtp"); }, ExitCode::bad_config),
            "\"sharegtp\" is not a dataset format; expected detect, messages, sharegpt, alpaca, alpaca_prompt, prompt "
            "or text.");
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
            "\"hf_hub_url\" names a dataset on a hub; download it: hf download org/name --repo-type dataset "
            "--local-dir data/name, and give its files as \"file_name\".");
  EXPECT_EQ(refused(R"({"script_url": "x"})"),
            "\"script_url\" names a program that loads the dataset; write the dataset to a file and give it as "
            "\"file_name\".");
  EXPECT_EQ(refused(R"({"file_name": "a.json", "ranking": true})"),
            "\"ranking\" makes it a preference dataset; preference training is not supported.");
  EXPECT_EQ(refused(R"({"file_name": "a.json", "columns": {"images": "images"}})"),
            "\"images\" is a column of images; only text is supported.");
  EXPECT_EQ(refused(R"({"file_name": "a.json", "columns": {"promt": "p"}})"),
            "\"columns\" has the unknown key \"promt\".");
  EXPECT_EQ(refused(R"({"file_name": "a.json", "formatting": "vicuna"})"),
            "\"formatting\" is \"vicuna\"; expected alpaca, sharegpt or openai.");
  EXPECT_EQ(refused(R"({"file_name": "a.json", "colums": {"prompt": "p"}})"), "has the unknown key \"colums\".");
  EXPECT_EQ(refused(R"({"file_name": "a.json", "folder": "x"})"), "has the unknown key \"folder\".");
  EXPECT_EQ(refused(R"({"file_name": ""})"), "needs a \"file_name\": a file or folder next to dataset_info.json.");
  EXPECT_EQ(refused("{}"), "needs a \"file_name\": a file or folder next to dataset_info.json.");
  EXPECT_EQ(refusal([&] { named(R"({"file_name": "gone.json"})"); }),
            "no such file or folder: " + path("info/gone.json") + "; check the path.");
  EXPECT_EQ(
      refusal([&] { open_dataset("x", path("info")); }),
      "x is not a file, a folder or a dataset in " + path("info") + "/dataset_info.json, which has d; check the name.");
}

}  // namespace
}  // namespace megatrain
