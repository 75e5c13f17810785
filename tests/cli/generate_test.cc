// `megatrain generate` as people and scripts use it.
#include <algorithm>
#include <sstream>

#include "megatrain/run/best_record.h"
#include "tests/support/speaking_model.h"

namespace megatrain::cli {

namespace {

// Up to the first end token.
std::vector<int32_t> cut(std::vector<int32_t> ids, size_t most = 1000) {
  const auto end = std::find(ids.begin(), ids.end(), 2);
  if (end != ids.end()) ids.erase(end + 1, ids.end());
  if (ids.size() > most) ids.resize(most);
  return ids;
}

}  // namespace

TEST(Generate, TextOfAPromptIsThatOfTransformersIdForId) {
  for (const char* name : {"llama_linear", "qwen2_window"}) {
    const SpeakingModel model(name);
    for (size_t i = 1; i < 4; ++i) {
      const json got =
          model.generate({"--prompt", text_of(model.golden_prompt(i)), "--max-tokens", "40", "--precision", "fp32"});
      const std::vector<int32_t> wanted = cut(model.golden_ids(i), 40);
      EXPECT_EQ(got.at("ids"), json(wanted)) << name << " " << i;
      EXPECT_EQ(got.at("text"), text_of(wanted));
      EXPECT_EQ(got.at("tokens"), wanted.size());
      EXPECT_EQ(got.at("prompt_tokens"), model.golden_prompt(i).size());
      EXPECT_EQ(got.at("finish"), wanted.back() == 2 ? "stop" : "length");
      EXPECT_GT(got.at("tokens_per_s"), 0);
    }
  }
}

TEST(Generate, PrintsTheTextAndOneLineEndWhereverThePromptComesFrom) {
  const SpeakingModel model;
  const std::string prompt = text_of(model.golden_prompt(2)), wanted = text_of(cut(model.golden_ids(2), 20)) + "\n";
  write_bytes(model / "prompt.txt", prompt + "\n");
  EXPECT_EQ(succeed(model.words({"--prompt", prompt, "--max-tokens=20"})).out, wanted);
  EXPECT_EQ(succeed(model.words({"--prompt-file", model / "prompt.txt", "--max-tokens=20"})).out, wanted);
  EXPECT_EQ(succeed(model.words({"--max-tokens=20"}), prompt + "\n").out, wanted);
}

TEST(Generate, StopTextsCutTheAnswerBeforeThem) {
  const SpeakingModel model;
  const std::string prompt = text_of(model.golden_prompt(3)), whole = text_of(cut(model.golden_ids(3), 30));
  ASSERT_GT(whole.size(), 12u);
  const std::string stop = whole.substr(8, 3);
  const json got = model.generate({"--prompt", prompt, "--max-tokens=30", "--stop", "never", "--stop", stop});
  EXPECT_EQ(got.at("text"), whole.substr(0, whole.find(stop)));
  EXPECT_EQ(got.at("finish"), "stop");
}

TEST(Generate, EndTokensComeFromEachOfTheModelsFiles) {
  const SpeakingModel model;
  const std::string prompt = text_of(model.golden_prompt(3));
  const std::vector<int32_t> all = model.golden_ids(3);
  const auto until = [&](int32_t id) {
    return std::vector<int32_t>(all.begin(), std::find(all.begin(), all.end(), id) + 1);
  };
  const int32_t end = all[6], other = all[3];
  ASSERT_NE(end, 2);
  const auto ids = [&] { return model.generate({"--prompt", prompt, "--max-tokens=40"}).at("ids"); };
  model.set("config.json", "eos_token_id", end);
  EXPECT_EQ(ids(), json(until(end)));
  model.set("generation_config.json", "eos_token_id", json::array({63, other}));
  const auto first = std::min(until(end), until(other), [](auto& a, auto& b) { return a.size() < b.size(); });
  EXPECT_EQ(ids(), json(first));
  model.remove("generation_config.json");
  model.set("config.json", "eos_token_id", nullptr);
  model.set("tokenizer_config.json", "eos_token", {{"content", text_of({end})}});
  EXPECT_EQ(ids(), json(until(end)));
}

TEST(Generate, AChatGoesThroughTheTemplateAndEndsWithATurn) {
  const SpeakingModel model("qwen2_window");
  model.set("config.json", "eos_token_id", nullptr);
  model.set("tokenizer_config.json", "eos_token", nullptr);  // only the template's own end of a turn remains
  int64_t ended = 0;
  for (const std::string message : {"hello", "good day", "what is it"}) {
    const json chat = model.generate({"--prompt", message, "--chat", "--system", "be kind", "--max-tokens=40"});
    const std::string text = "system be kind<|end|>user " + message + "<|end|>assistant ";
    const json plain = model.generate({"--prompt", text, "--max-tokens=40"});
    EXPECT_EQ(chat.at("prompt_tokens"), text.size() - 2 * (std::string("<|end|>").size() - 1));
    EXPECT_EQ(plain.at("prompt_tokens"), chat.at("prompt_tokens"));
    const std::vector<int32_t> unended = plain.at("ids");
    EXPECT_EQ(unended.size(), 40u);
    EXPECT_EQ(chat.at("ids"), json(cut(unended)));
    ended += chat.at("finish") == "stop";
    if (chat.at("finish") == "stop") {
      EXPECT_EQ(chat.at("ids").back(), 2);
      EXPECT_EQ(chat.at("text"), text_of(cut(unended)));
    }
  }
  EXPECT_GT(ended, 0) << "no answer ended: the messages test nothing";
}

TEST(Generate, TheSameSeedGivesTheSameTextAndAnotherAnother) {
  const SpeakingModel model;
  const auto text = [&](const std::string& seed) {
    return model
        .generate({"--prompt", "once", "--temperature", "1.5", "--top-p", "0.9", "--top-k=40", "--seed", seed,
                   "--max-tokens=30"})
        .at("ids");
  };
  EXPECT_EQ(text("7"), text("7"));
  EXPECT_NE(text("7"), text("8"));
}

TEST(Generate, LinesOfPromptsAreAnsweredTogetherAsEachAlone) {
  const SpeakingModel model;
  const std::vector<std::string> prompts = {"a", "a longer prompt", "b2", "once upon a time there was"};
  std::string lines;
  for (const std::string& prompt : prompts) lines += json{{"prompt", prompt}}.dump() + "\n\n";
  lines += R"({"messages": [{"role": "user", "content": "hi"}]})";
  write_bytes(model / "prompts.jsonl", lines);
  std::istringstream out(succeed(model.words({"--prompt-file", model / "prompts.jsonl", "--max-tokens=12"})).out);
  for (const std::string& prompt : prompts) {
    std::string line;
    ASSERT_TRUE(std::getline(out, line));
    EXPECT_EQ(json::parse(line).at("ids"), model.generate({"--prompt", prompt, "--max-tokens=12"}).at("ids")) << prompt;
  }
  std::string line;
  ASSERT_TRUE(std::getline(out, line));
  EXPECT_EQ(json::parse(line).at("ids"), model.generate({"--prompt", "hi", "--chat", "--max-tokens=12"}).at("ids"));
  EXPECT_FALSE(std::getline(out, line));
}

TEST(Generate, ARunsModelIsFound) {
  const SpeakingModel model;
  EXPECT_EQ(succeed({"generate", model / "", "--device=cpu", "--prompt=abc", "--max-tokens=3", "--json"}).code, 0);
  fs::create_directory(model / "not finished");
  write_bytes(model / "not finished/config.resolved.yaml", "steps: 1\n");
  expect_refusal({"generate", model / "not finished", "--prompt=a"}, ExitCode::bad_input,
                 {"has not finished", "megatrain export '" + (model / "not finished") + "' --out DIR"});
  fs::create_directory(model / "empty");
  expect_refusal({"generate", model / "empty", "--prompt=a"}, ExitCode::bad_input, {"config.json"});
  expect_refusal({"generate", model / "nowhere", "--prompt=a"}, ExitCode::bad_input, {"not a directory"});
}

TEST(Generate, OfARunThatKeptItsBestModelThatOneIsUsedAndNamed) {
  const SpeakingModel model;
  const std::string run = model / "run";
  fs::create_directory(run);
  for (const char* name : {"/model", "/best"})
    fs::copy(golden("llama_linear") + "/model", run + name, fs::copy_options::recursive);
  for (const char* name : {"/tokenizer.json", "/tokenizer_config.json"})
    for (const char* folder : {"/model", "/best"}) fs::copy((model / "model") + name, run + folder + name);
  write_bytes(run + "/eval.jsonl", "{\"step\":3,\"loss\":1.25}\n{\"step\":6,\"loss\":7.5}\n");
  const auto said = [&](const std::string& keys, const std::string& given) {
    write_bytes(run + "/config.resolved.yaml", "data: {train: a.jsonl, eval_split: 1}\n" + keys);
    return succeed({"generate", given, "--device=cpu", "--prompt=abc", "--max-tokens=1"}).err;
  };
  const std::string unknown = said("eval: {every: 3, keep_best: true}\n", run);
  EXPECT_NE(unknown.find("best.json is not there"), std::string::npos) << unknown;
  write_best_record(run, {.step = 3, .loss = 1.25, .weights = hash_of(run + "/best").at("weights")});
  const std::string best = said("eval: {every: 3, keep_best: true}\n", run);
  for (const std::string& part : {run + "/best", std::string("step 3"), std::string("1.25"), run + "/model"})
    EXPECT_NE(best.find(part), std::string::npos) << part << " in " << best;
  for (const std::string& last : {said("eval: {every: 3, keep_best: true}\n", run + "/model"), said("", run)})
    EXPECT_EQ(last.find("/best"), std::string::npos) << last;

  fs::remove(run + "/eval.jsonl");
  EXPECT_NE(said("eval: {every: 3, keep_best: true}\n", run).find("of step 3"), std::string::npos);
  fs::remove_all(run + "/best");
  const std::string gone = said("eval: {every: 3, keep_best: true}\n", run);
  EXPECT_NE(gone.find(run + "/best is gone"), std::string::npos) << gone;
}

TEST(Generate, SaysWhatIsWrongWithTheWords) {
  const SpeakingModel model;
  const auto refuse = [&](const Words& words, std::initializer_list<std::string> parts) {
    expect_refusal(model.words(words), ExitCode::bad_config, parts);
  };
  refuse({"--prompt=a", "--temperature=-1"}, {"--temperature", "0 or more"});
  refuse({"--prompt=a", "--temperature=warm"}, {"--temperature", "'warm'", "number"});
  refuse({"--prompt=a", "--temperature=1", "--top-p=0"}, {"--top-p", "more than 0"});
  refuse({"--prompt=a", "--top-k=5"}, {"--temperature 1"});
  refuse({"--prompt=a", "--max-tokens=0"}, {"--max-tokens", "1 or more"});
  refuse({"--prompt=a", "--stop="}, {"--stop"});
  refuse({"--prompt=a", "--prompt-file=b"}, {"both given"});
  refuse({"--prompt=a", "--system=b"}, {"--chat"});
  refuse({"--prompt=a", "--optim.lr=1"}, {"--optim.lr", "training"});
  refuse({"--prompt=a", "--temprature=1"}, {"--temprature", "generate"});
  refuse({"--prompt=a", "--precision=fp8"}, {"precision", "fp8"});
}

TEST(Generate, SaysWhatIsWrongWithTheModelAndThePrompt) {
  const SpeakingModel model;
  const auto refuse = [&](const Words& words, std::initializer_list<std::string> parts) {
    expect_refusal(model.words(words), ExitCode::bad_input, parts);
  };
  refuse({"--prompt="}, {"no tokens"});
  refuse({"--prompt", std::string(128, 'a')}, {"128 tokens", "context of 128"});
  write_bytes(model / "bad.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": 3}\n");
  refuse({"--prompt-file", model / "bad.jsonl"}, {"bad.jsonl:2: \"prompt\" is a number; expected text"});
  write_bytes(model / "bad.jsonl", "{\"prompt\": \"a\"}\n\n{\"prompt\": \"a\"\n");
  refuse({"--prompt-file", model / "bad.jsonl"}, {"bad.jsonl:3: not valid JSON at column 15"});
  write_bytes(model / "bad.jsonl", "\n");
  refuse({"--prompt-file", model / "bad.jsonl"}, {"bad.jsonl has no rows"});
  model.set("config.json", "eos_token_id", "end");
  refuse({"--prompt=a"}, {"eos_token_id", "end"});
  model.set("config.json", "eos_token_id", 2);
  model.set("tokenizer_config.json", "chat_template", nullptr);
  refuse({"--prompt=a", "--chat"}, {"no chat template"});
  model.remove("tokenizer.json");
  refuse({"--prompt=a"}, {"no tokenizer.json"});
}

TEST(Generate, ColumnsThatAreNotReadAreNamedOnce) {
  const SpeakingModel model;
  write_bytes(model / "rows.jsonl", R"({"prompt": "a", "id": 1, "label": "x", "system": "", "seed": null})"
                                    "\n"
                                    R"({"id": 2, "prompt": "b", "answer": "y"})");
  const Outcome outcome = succeed(model.words({"--prompt-file", model / "rows.jsonl", "--max-tokens=2"}));
  EXPECT_EQ(json_lines(outcome.out).size(), 2u);
  const std::string warning =
      "rows.jsonl: only \"prompt\" or \"messages\" of a row is read; ignored: \"answer\", \"id\", \"label\"\n";
  const size_t at = outcome.err.find(warning);
  ASSERT_NE(at, std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find(warning, at + 1), std::string::npos) << outcome.err;
}

TEST(Generate, FieldsOfARowThatWouldChangeItsAnswerAreRefused) {
  const SpeakingModel model;
  const auto refuse = [&](const std::string& row, std::initializer_list<std::string> parts) {
    write_bytes(model / "rows.jsonl", "{\"prompt\": \"a\"}\n" + row + "\n");
    expect_refusal(model.words({"--prompt-file", model / "rows.jsonl"}), ExitCode::bad_input, parts);
  };
  for (const auto& [name, option] : {std::pair{"max_tokens", "--max-tokens"},
                                     {"temperature", "--temperature"},
                                     {"top_p", "--top-p"},
                                     {"top_k", "--top-k"},
                                     {"seed", "--seed"},
                                     {"stop", "--stop"}})
    refuse(fmt::format("{{\"prompt\": \"a\", \"{}\": 1}}", name),
           {fmt::format("rows.jsonl:2: \"{}\" is not supported in a row", name), option});
  refuse(R"({"prompt": "a", "system": "be kind"})", {"rows.jsonl:2: \"system\"", "--system"});
  refuse(R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}]})", {"rows.jsonl:2: \"tools\""});
  refuse(R"({"prompt": "a", "messages": [{"role": "user", "content": "a"}]})",
         {"rows.jsonl:2: it has both \"prompt\" and \"messages\""});
}

TEST(Generate, WithoutATokenizerItNamesNoKeyThatItRefuses) {
  const SpeakingModel model;
  model.remove("tokenizer.json");
  write_bytes(model / "test.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}\n");
  for (const Words& words : {model.words({"--prompt=a"}), model.words({model / "test.jsonl"}, "eval")}) {
    const Outcome outcome = megatrain(words);
    EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::bad_input)) << outcome.err;
    EXPECT_EQ(outcome.err.find("data.tokenizer"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("copy it from the model this one was made from"), std::string::npos) << outcome.err;
  }
  write_bytes(model / "text.txt", "some text");
  write_bytes(model / "config.yaml", "model.path: " + model.path() + "\ndata.train: " + (model / "text.txt") + "\n");
  expect_refusal({"prepare", model / "config.yaml"}, ExitCode::bad_input,
                 {"no tokenizer.json", "or give data.tokenizer a directory that has one"});
}

TEST(Generate, AnswersEndWhereTheContextDoes) {
  const SpeakingModel model;
  model.set("config.json", "eos_token_id", nullptr);
  model.set("tokenizer_config.json", "eos_token", nullptr);
  const json got = model.generate({"--prompt", std::string(100, 'a'), "--max-tokens=1000"});
  EXPECT_EQ(got.at("tokens"), 28);
  EXPECT_EQ(got.at("finish"), "length");
}

TEST(Generate, MemoryThatHoldsNotEvenOneSequenceIsRefused) {
  const SpeakingModel model;
  expect_refusal(model.words({"--prompt=a", "--memory.gpu=1KiB"}), ExitCode::cannot_fit, {"needs at least", "1"});
}

TEST(Generate, AFileOfTheModelThatCannotBeReadIsAnErrorOfTheDisk) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "generation_config.json", "chat_template.jinja"}) {
    const SpeakingModel model;
    model.remove(name);
    fs::create_directory(model.path() + "/" + name);
    expect_refusal(model.words({"--prompt=a"}), ExitCode::io, {model.path() + "/" + name, "a directory"});
  }
}

}  // namespace megatrain::cli
