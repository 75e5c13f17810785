// Datasets as people have them: prepared, inspected, refused with file and line, trained on.
#include "tests/support/byte_model.h"
#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

std::string chat(const std::string& question, const std::string& answer) {
  return json{{"messages", {{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}}}}
             .dump() +
         "\n";
}

std::string chats(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += chat(fmt::format("number {}", i), std::string(1 + i * 11 % 50, 'x'));
  return lines;
}

// A folder with a tiny model, data.jsonl and a configuration that trains on it.
class DataPlace {
 public:
  explicit DataPlace(const std::string& data, const std::string& extra = "") {
    write_byte_model(folder_ / "model", 32, 2);
    write_bytes(folder_ / "data.jsonl", data);
    write_bytes(config(),
                fmt::format("model.config: {0}/model/config.json\ndata: {{tokenizer: {0}/model, train: {0}/data.jsonl, "
                            "cache: {0}/cache}}\nrun_dir: {0}/run\ndevice: cpu\nthreads: 1\nprecision: fp32\nseq_len: "
                            "128\nbatch: 2\n{1}",
                            folder_.path(), extra));
  }
  std::string operator/(const std::string& name) const { return folder_ / name; }
  std::string config() const { return folder_ / "config.yaml"; }

 private:
  TemporaryDirectory folder_;
};

json prepared(const DataPlace& place, Words more = {}) {
  more.insert(more.begin(), {"prepare", place.config(), "--json"});
  return json::parse(succeed(more).out);
}

}  // namespace

TEST(Prepare, SaysWhatTheDataComeTo) {
  const DataPlace place(chats(20), "epochs: 2\n");
  const json said = prepared(place);
  EXPECT_EQ(said.at("train").at("samples"), 20);
  EXPECT_EQ(said.at("eval"), nullptr);
  EXPECT_EQ(said.at("bad"), 0);
  EXPECT_EQ(said.at("steps"), said.at("train").at("sequences"));  // two epochs, two sequences per step
  EXPECT_GT(said.at("train").at("filled"), 0.8);
  EXPECT_NE(succeed({"prepare", place.config()}).out.find("20 samples"), std::string::npos);
}

TEST(Prepare, SaysHowManyConversationsTheirLengthCutsOrLeavesOut) {
  const DataPlace place(chats(3) + chat("long", std::string(300, 'x')) + chat(std::string(300, 'q'), "no room"));
  const std::string drop = succeed({"prepare", place.config(), "--data.overlong=drop"}).out;
  EXPECT_NE(drop.find("; 2 left out, too long or with nothing to train\n       an epoch has "), std::string::npos)
      << drop;
  EXPECT_EQ(drop.find("truncated"), std::string::npos) << drop;
  const std::string cut = succeed({"prepare", place.config(), "--data.overlong=truncate"}).out;
  EXPECT_NE(cut.find("; 2 truncated; 1 left out, too long or with nothing to train\n       an epoch has "),
            std::string::npos)
      << cut;
  const json said = prepared(place, {"--data.overlong=truncate"}).at("train");
  EXPECT_EQ(said.at("truncated"), 2);
  EXPECT_EQ(said.at("left_out"), 1);
}

TEST(Prepare, LeavesAFolderAloneThatItDidNotMake) {
  const DataPlace place(chats(4));
  fs::create_directory(place / "out.partial");
  write_bytes(place / "out.partial/mine", "mine");
  expect_refusal({"prepare", place.config(), "--out", place / "out"}, ExitCode::bad_config, {"out.partial", "mine"});
  EXPECT_EQ(read_bytes(place / "out.partial/mine"), "mine");
}

TEST(Prepare, WhatItWritesOutTrainsAsTheDatasetsThemselvesDo) {
  const DataPlace place(chats(30), "epochs: 2\n");
  succeed({"prepare", place.config(), "--out", place / "out"});
  const json said = prepared(place);
  succeed({"train", place.config()});
  const Words raw = {"train",
                     place.config(),
                     "--epochs=null",
                     fmt::format("--steps={}", said.at("steps").get<int64_t>()),
                     "--data.train=null",
                     "--data.tokens=" + (place / "out/tokens.bin"),
                     "--run_dir=" + (place / "raw")};
  succeed(raw);
  EXPECT_EQ(hash_of(place / "raw").at("state"), hash_of(place / "run").at("state"));
  const auto shown = [&](Words words) {
    words.insert(words.begin(), {"inspect", "data", place.config(), "-n", "2", "--json"});
    json all = json::parse(succeed(words).out);
    for (json& sequence : all)
      for (json& document : sequence.at("documents"))
        for (const char* const key : {"place", "padding"}) document.erase(key);  // raw tokens have neither
    return all;
  };
  EXPECT_EQ(shown({"--data.train=null", "--data.tokens=" + (place / "out/tokens.bin")}), shown({}));
  Words narrow = raw;
  narrow.push_back("--data.dtype=uint16");
  expect_refusal(narrow, ExitCode::bad_config, {"--data.dtype", "uint16", "prepared.json", "uint32"});
  narrow.back() = "--seq_len=32";
  expect_refusal(narrow, ExitCode::bad_config, {"--seq_len", "32", "prepared.json", said.at("seq_len").dump()});

  for (const std::string name : {"tokens.bin", "labels.bin", "documents.bin"}) {
    const std::string path = place / ("out/" + name), whole = read_bytes(path);
    std::string damaged = whole;
    damaged[damaged.size() / 2] ^= 1;
    write_bytes(path, damaged);
    expect_refusal(raw, ExitCode::bad_input, {name, "damaged"});
    write_bytes(path, whole);
  }
}

TEST(InspectData, ShowsWhatIsTrainedAndWhereDocumentsEnd) {
  const DataPlace place(chat("hi", "yo") + chat("a", "b"), "data.shuffle: false\n");
  const std::string plain = succeed({"inspect", "data", place.config(), "-n", "1"}).out;
  EXPECT_NE(plain.find("data.jsonl:1: 25 tokens, 3 trained\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
                       "\u27e6yo<|im_end|>\u27e7"),
            std::string::npos)
      << plain;
  EXPECT_NE(plain.find("data.jsonl:2: "), std::string::npos);
  EXPECT_NE(plain.find("tokens of padding"), std::string::npos);
  EXPECT_NE(succeed({"inspect", "data", place.config(), "--color=always"}).out.find("\x1b[32myo<|im_end|>"),
            std::string::npos);
  const json all = json::parse(succeed({"inspect", "data", place.config(), "-n", "9", "--json", "--epochs=1"}).out);
  EXPECT_LT(all.size(), 9u);  // all that a shorter run has
  const json sequences = json::parse(succeed({"inspect", "data", place.config(), "-n", "1", "--json"}).out);
  const json& tokens = sequences.at(0).at("documents").at(0).at("tokens");
  EXPECT_EQ(tokens.at(0), (json{{"id", kImStart}, {"trained", false}, {"token", "<|im_start|>"}}));
  EXPECT_EQ(tokens.at(21).at("trained"), true);
}

struct BadCase {
  const char* what;
  std::string line;
  std::string said;
};

TEST(BadData, EveryKindIsRefusedWithFileLineAndASentence) {
  const std::string good = chat("hi", "yo");
  const BadCase cases[] = {
      {"malformed JSON", "{\"messages\": [}\n", "JSON"},
      {"not an object", "[1, 2]\n", "object"},
      {"a wrong role",
       R"({"messages":[{"role":"wizard","content":"a"},{"role":"assistant","content":"b"}]})"
       "\n",
       "wizard"},
      {"an empty conversation",
       R"({"messages":[]})"
       "\n",
       "empty"},
      {"nothing to train",
       R"({"messages":[{"role":"user","content":"a"}]})"
       "\n",
       "train"},
      {"no text",
       R"({"messages":[{"role":"user","content":7},{"role":"assistant","content":"b"}]})"
       "\n",
       "content"},
      {"other columns",
       R"({"question":"a","answer":"b"})"
       "\n",
       "messages"},
      {"text that is not UTF-8", "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}\n", "UTF-8"},
      {"a key twice",
       R"({"messages":[],"messages":[]})"
       "\n",
       "duplicate key"},
      {"too long a conversation", chat("long", std::string(300, 'x')), "more than seq_len"},
  };
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.what);
    const DataPlace place(good + "\n" + bad.line + good, "steps: 1\n");
    expect_refusal({"train", place.config()}, ExitCode::bad_input, {"data.jsonl:3: ", bad.said});
    EXPECT_FALSE(fs::exists(place / "run"));
    const Outcome skipped = succeed({"train", place.config(), "--skip-bad", "1"});
    EXPECT_TRUE(fs::exists(place / "run/model/config.json")) << skipped.err;
  }
}

TEST(BadData, OneMoreThanToleratedEndsTheRun) {
  const DataPlace place("{\n" + chats(3) + "{\n{\n");
  EXPECT_EQ(prepared(place, {"--skip-bad", "3"}).at("bad"), 3);
  EXPECT_EQ(prepared(place, {"--skip-bad", "3"}).at("train").at("samples"), 3);
  expect_refusal({"prepare", place.config(), "--skip-bad", "2"}, ExitCode::bad_input, {"data.jsonl:1: "});
}

TEST(BadData, ATemplateThatRefusesAndATokenThatIsNowhereAreSentences) {
  const DataPlace place(chats(3), "steps: 1\n");
  write_bytes(place / "angry.jinja", "{{ raise_exception('no talking here') }}");
  expect_refusal({"train", place.config(), "--data.template=" + (place / "angry.jinja")}, ExitCode::bad_input,
                 {"no talking here", "data.jsonl:1"});
  write_bytes(place / "broken.jinja", "{% for m in messages %}");
  expect_refusal({"train", place.config(), "--data.template=" + (place / "broken.jinja")}, ExitCode::bad_input,
                 {"broken.jinja"});
  json config = chatml_config();
  config["eos_token"] = "<|nowhere|>";
  write_bytes(place / "model/tokenizer_config.json", config.dump());
  expect_refusal({"train", place.config()}, ExitCode::bad_input, {"eos_token", "<|nowhere|>"});
}

TEST(BadData, WhatIsNotThereIsNamed) {
  const DataPlace place(chats(3), "steps: 1\n");
  expect_refusal({"train", place.config(), "--data.train=" + (place / "missing.jsonl")}, ExitCode::bad_input,
                 {"missing.jsonl"});
  fs::remove(place / "model/tokenizer.json");
  expect_refusal({"train", place.config()}, ExitCode::bad_input, {"tokenizer.json"});
  expect_refusal({"train", place.config(), "--data.tokenizer=null"}, ExitCode::bad_config, {"data.tokenizer"});
}

TEST(DatasetTraining, ATemplateOfTheRunGoesWithTheModel) {
  const DataPlace place(chats(3), "steps: 1\n");
  const std::string text =
      "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}"
      "<|im_start|>{% endif %}";
  write_bytes(place / "mine.jinja", text);
  succeed({"train", place.config(), "--data.template=" + (place / "mine.jinja"), "--checkpoint.every=1"});
  EXPECT_EQ(read_bytes(place / "run/model/chat_template.jinja"), text);
  succeed({"export", place / "run", "--out", place / "out"});
  EXPECT_EQ(read_bytes(place / "out/chat_template.jinja"), text);
}

TEST(DatasetTraining, ALlamaFactoryConfigurationRunsAsItIs) {
  const DataPlace place("");
  fs::create_directories(place / "data");
  write_bytes(
      place / "data/dataset_info.json",
      R"({"mine": {"file_name": "alpaca.json"}, "talk": {"file_name": "talk.json", "formatting": "sharegpt"}})");
  json alpaca = json::array(), talk = json::array();
  for (int i = 0; i < 10; ++i) {
    alpaca.push_back({{"instruction", fmt::format("say {}", i)}, {"input", ""}, {"output", "ok"}});
    talk.push_back({{"conversations",
                     {{{"from", "human"}, {"value", "hi"}}, {{"from", "gpt"}, {"value", fmt::format("yo {}", i)}}}}});
  }
  write_bytes(place / "data/alpaca.json", alpaca.dump(1));
  write_bytes(place / "data/talk.json", talk.dump(1));
  succeed({"train", place.config(), "--steps=0", "--data.train=null", "--run_dir=" + (place / "start")});
  write_bytes(place / "lf.yaml", fmt::format(R"(### model
model_name_or_path: {0}/start/model
### method
stage: sft
do_train: true
finetuning_type: full
deepspeed: ds_z3.json
### dataset
dataset: mine,talk
dataset_dir: {0}/data
template: qwen
cutoff_len: 128
overwrite_cache: true
preprocessing_num_workers: 16
### output
output_dir: {0}/saves
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-4
num_train_epochs: 1.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
### eval
val_size: 0.1
per_device_eval_batch_size: 1
eval_strategy: steps
eval_steps: 2
)",
                                             place / "."));
  const Outcome outcome =
      succeed({"train", place / "lf.yaml", "--device=cpu", "--data.cache=" + (place / "cache"), "--json"});
  std::ifstream kept(place / "saves/translation.txt");
  const std::string table((std::istreambuf_iterator<char>(kept)), {});
  EXPECT_NE(table.find("learning_rate: 1.0e-4"), std::string::npos) << table;
  EXPECT_NE(outcome.err.find(table), std::string::npos) << outcome.err;
  EXPECT_TRUE(json::parse(outcome.out).at("eval_loss").is_number());
  EXPECT_TRUE(fs::exists(place / "saves/model/tokenizer.json"));
  // the resolved configuration alone reproduces the run
  const Outcome again =
      succeed({"train", place / "saves/config.resolved.yaml", "--run_dir=" + (place / "again"), "--json"});
  EXPECT_EQ(json::parse(again.out).at("state"), json::parse(outcome.out).at("state"));
  EXPECT_FALSE(fs::exists(place / "again/translation.txt"));
}

TEST(Resume, WithOtherDataKeysNamesThemWithBothValues) {
  const DataPlace place(chats(20), "steps: 2\ncheckpoint.every: 1\n");
  succeed({"train", place.config()});
  const Words resumed = {"train", place.config(), "--resume"};
  const auto expect_refused = [&](const Words& more, std::initializer_list<std::string> parts) {
    Words words = resumed;
    words.insert(words.end(), more.begin(), more.end());
    expect_refusal(words, ExitCode::bad_config, parts);
  };
  expect_refused({"--data.packing=false"}, {"was made with data.packing = true, this run has false: resuming"});
  expect_refused({"--data.train_on=all", "--data.shuffle=false"},
                 {"data.train_on = ", "assistant", "all", "data.shuffle = false, was true"});
  expect_refused({"--conventions=transformers"}, {"was made with conventions = megatrain, this run has transformers"});
  write_bytes(place / "data.jsonl", chats(21));
  expect_refused({}, {"was made with data = \"", "the samples differ"});
}

}  // namespace megatrain::cli
