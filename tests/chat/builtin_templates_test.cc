// Built-in templates against what LLaMA-Factory, Axolotl and others write (tests/chat/make_builtin_goldens.py).
#include "megatrain/chat/builtin_templates.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include <gtest/gtest.h>

#include "megatrain/base/error.h"
#include "megatrain/chat/chat_template.h"
#include "megatrain/chat/model_text.h"
#include "tests/support/fixtures.h"
#include "tests/support/said.h"
#include "tests/support/template_goldens.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;
using Tokens = std::vector<std::pair<std::string, std::string>>;

// Its tokenizer has the tokens with which these templates end a turn.
ChatTemplate builtin_chat(const std::string& name) {
  ChatTemplate chat(builtin_template(name).value(), name, Tokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  chat.add_special_tokens({"<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|return|>"});
  return chat;
}

ChatInputs inputs_of(const Json& shape) {
  return {.messages = shape["messages"],
          .tools = shape.value("tools", Json()),
          .documents = Json(),
          .variables = shape.value("variables", Json()),
          .add_generation_prompt = shape.value("add_generation_prompt", false),
          .now = golden::fixed_time()};
}

std::string without_line_feeds(std::string text) {
  const size_t end = text.find_last_not_of('\n');
  return text.substr(0, end == std::string::npos ? 0 : end + 1);
}

TEST(BuiltinTemplates, WriteWhatTheTrainersWriteThatNameThem) {
  const Json goldens = golden::read_json("goldens/builtin.json");
  std::set<std::string> seen;
  for (const Json& each : goldens["cases"]) {
    const std::string name = each["builtin"], shape = each["shape"];
    seen.insert(name);
    EXPECT_EQ(builtin_chat(name).render(inputs_of(goldens["shapes"][shape])).text, each["text"].get<std::string>())
        << name << " " << shape << " of " << each["source"];
  }
  for (const std::string& name : builtin_template_names()) EXPECT_TRUE(seen.count(name)) << name;
  EXPECT_GE(goldens["cases"].size(), 189u);
}

TEST(BuiltinTemplates, TrainTheAnswersThatLlamaFactoryTrainsWithTheirEnds) {
  const Json goldens = golden::read_json("goldens/builtin.json");
  int answers = 0;
  for (const Json& each : goldens["cases"]) {
    if (!each.contains("trained")) continue;
    const RenderedChat rendered =
        builtin_chat(each["builtin"]).render(inputs_of(goldens["shapes"][each["shape"].get<std::string>()]));
    std::vector<std::string> trained;
    for (const auto& [begin, end, message] : rendered.trained)
      trained.push_back(without_line_feeds(rendered.text.substr(begin, end - begin)));
    std::vector<std::string> expected = each["trained"];
    EXPECT_EQ(trained, expected) << each["builtin"] << " " << each["shape"];
    EXPECT_TRUE(rendered.ends && rendered.sure) << each["builtin"] << " " << each["shape"];
    answers += static_cast<int>(expected.size());
  }
  EXPECT_GT(answers, 80);
}

TEST(BuiltinTemplates, EveryOneEndsItsAnswersAndBeginsThemWithItsGenerationPrompt) {
  const Json question = {{"role", "user"}, {"content", "Why?"}}, answer = {{"role", "assistant"}, {"content", "So."}};
  for (const std::string& name : builtin_template_names()) {
    const ChatTemplate chat = builtin_chat(name);
    const RenderedChat whole = chat.render({.messages = Json::array({question, answer})});
    const std::string asked = chat.render({.messages = Json::array({question}), .add_generation_prompt = true}).text;
    ASSERT_EQ(whole.trained.size(), 1u) << name;
    EXPECT_TRUE(whole.ends && whole.sure) << name;
    EXPECT_TRUE(name == "alpaca-plain" || whole.text.starts_with(asked)) << name;
    const std::string trained =
        whole.text.substr(whole.trained[0].begin, whole.trained[0].end - whole.trained[0].begin);
    EXPECT_NE(trained.find("So."), std::string::npos) << name;
    EXPECT_FALSE(trained.ends_with("So.")) << name << " trains no end";
  }
}

TEST(BuiltinTemplates, TheThinkingSwitchOfQwen3LeavesTheEmptyThoughtOutOfTraining) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "2+2?"}},
                                     {{"role", "assistant"}, {"content", "4"}, {"reasoning_content", "Hm."}}});
  const auto trained = [&](const char* name) {
    const RenderedChat chat = builtin_chat(name).render({.messages = messages});
    return chat.text.substr(chat.trained.at(0).begin, chat.trained.at(0).end - chat.trained.at(0).begin);
  };
  EXPECT_EQ(trained("qwen3"), "<think>\nHm.\n</think>\n\n4<|im_end|>");
  EXPECT_EQ(trained("qwen3-thinking-off"), "4<|im_end|>");
  EXPECT_EQ(trained("qwen3-nothink"), "4<|im_end|>");
}

TEST(BuiltinTemplates, RefuseToolsThatTheyDoNotWrite) {
  const Json goldens = golden::read_json("goldens/builtin.json");
  const ChatInputs with_tools = inputs_of(goldens["shapes"]["tools"]);
  const std::set<std::string> write = {"llama3", "qwen", "qwen3", "qwen3-thinking-off", "qwen3-nothink"};
  for (const std::string& name : builtin_template_names()) {
    if (write.count(name)) {
      EXPECT_NE(builtin_chat(name).render(with_tools).text.find("clock"), std::string::npos) << name;
      continue;
    }
    const std::string said = refused_with(ExitCode::bad_input, [&] { builtin_chat(name).render(with_tools); });
    EXPECT_NE(said.find("the built-in template " + name + " has no tools"), std::string::npos) << said;
  }
}

TEST(BuiltinTemplates, NamesMayHaveUnderscoresAndUnknownOnesListTheKnown) {
  EXPECT_EQ(builtin_template("gpt_oss"), builtin_template("gpt-oss"));
  EXPECT_FALSE(builtin_template("llama9"));
  const std::string said = refused_with(ExitCode::bad_input, [] { read_template("llama9"); });
  EXPECT_NE(said.find("there is no built-in chat template 'llama9'"), std::string::npos) << said;
  EXPECT_NE(said.find("chatml, llama3, qwen"), std::string::npos) << said;
}

// A model's directory: a tokenizer of bytes with these special tokens, and a chat template if given.
class NamedTemplate : public testing::Test {
 protected:
  ModelText load(const std::string& chosen, const std::string& own = "",
                 const std::vector<std::string>& specials = {"</s>", "<|im_start|>", "<|im_end|>"}, bool eos = true) {
    Json vocab = Json::object(), added = Json::array();
    for (int c = 32; c < 127; ++c) vocab[std::string(1, static_cast<char>(c))] = vocab.size();
    for (const std::string& token : specials)
      added.push_back({{"id", vocab.size() + added.size()},
                       {"content", token},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    const Json tokenizer = {{"added_tokens", added},
                            {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
    write("tokenizer.json", tokenizer.dump());
    write("tokenizer_config.json", eos ? R"({"eos_token": "</s>"})" : "{}");
    std::filesystem::remove(folder_ / "chat_template.jinja");
    if (!own.empty()) write("chat_template.jinja", own);
    return ModelText::load(folder_.path(), chosen);
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }

  TemporaryDirectory folder_;
};

constexpr const char* kOwnChatml =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kShouting = "{% for m in messages %}<|im_start|>{{ m.content | upper }}<|im_end|>{% endfor %}";

TEST_F(NamedTemplate, ServesAModelWithoutOneAndItsEndTokenEndsAnswers) {
  const ModelText model = load("chatml");
  ASSERT_TRUE(model.chat_template);
  EXPECT_EQ(model.replaced_template, builtin_template("chatml"));
  EXPECT_TRUE(model.chat_end_ids.count(model.tokenizer.id_of("<|im_end|>")));
  EXPECT_FALSE(model.end_ids.count(model.tokenizer.id_of("<|im_end|>")));
}

TEST_F(NamedTemplate, LeavesAnEqualOneOfTheModelInPlaceSilently) {
  std::optional<ModelText> model;
  const std::string said = logged_by([&] { model = load("chatml", kOwnChatml); });
  EXPECT_EQ(said, "");
  EXPECT_EQ(model->replaced_template, "");
  EXPECT_EQ(model->chat_template->sources().front().second, kOwnChatml);
  EXPECT_EQ(model->template_identity, load("", kOwnChatml).template_identity);
}

TEST_F(NamedTemplate, ReplacesADifferentOneWithAWarningThatShowsBoth) {
  std::optional<ModelText> model;
  const std::string said = logged_by([&] { model = load("chatml", kShouting); });
  EXPECT_EQ(model->replaced_template, builtin_template("chatml"));
  for (const char* part :
       {"data.template is chatml", R"("<|im_start|>user\nHi<|im_end|>\n)", R"("<|im_start|>HI<|im_end|>)"})
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  EXPECT_NE(model->template_identity, load("", kShouting).template_identity);
}

TEST_F(NamedTemplate, IsRefusedIfTheTokenizerLacksItsTokensOrItsEnd) {
  EXPECT_NE(refused_with(ExitCode::bad_input, [&] { load("llama3"); })
                .find("data.template is llama3, a chat template that writes <|"),
            std::string::npos)
      << refused_with(ExitCode::bad_input, [&] { load("llama3"); });
  EXPECT_NE(refused_with(ExitCode::bad_input,
                         [&] {
                           load("chatml", kShouting, {"</s>", "<|im_start|>"});
                         })
                .find("<|im_end|>"),
            std::string::npos);
  EXPECT_NE(refused_with(ExitCode::bad_input, [&] { load("gemma"); }).find("<end_of_turn>"), std::string::npos);
  EXPECT_NE(refused_with(ExitCode::bad_input, [&] { load("vicuna", "", {"</s>"}, false); }).find("add \"eos_token\""),
            std::string::npos);
  EXPECT_TRUE(load("vicuna").chat_template);
}

TEST_F(NamedTemplate, WordsThatSplitIntoSeveralTokensAreAWarning) {
  const std::string said = logged_by([&] { load("mistral"); });
  EXPECT_NE(said.find("[INST] and [/INST], which the tokenizer splits"), std::string::npos) << said;
  EXPECT_EQ(logged_by([&] { load("mistral", "", {"</s>", "[INST]", "[/INST]"}); }), "");
}

}  // namespace
}  // namespace megatrain
