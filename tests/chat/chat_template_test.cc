// Text and masks of chat templates against transformers' (tests/chat/make_template_goldens.py).
#include "megatrain/chat/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "megatrain/base/error.h"
#include "tests/support/template_goldens.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> forms() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden::chat_folder() / "templates")) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

ChatTemplate load_form(const std::string& name, const Json& golden) {
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const auto& [key, token] : golden["tokens"].items()) tokens.emplace_back(key, token.get<std::string>());
  ChatTemplate chat(golden::read_text("templates/" + name + ".jinja"), name, tokens);
  chat.add_special_tokens(golden["special"].get<std::vector<std::string>>());
  return chat;
}

ChatInputs shape_inputs(const Json& shape) {
  ChatInputs inputs{.messages = shape["messages"], .now = golden::fixed_time()};
  if (shape.contains("tools")) inputs.tools = shape["tools"];
  if (shape.contains("variables")) inputs.variables = shape["variables"];
  inputs.add_generation_prompt = shape.value("add_generation_prompt", false);
  return inputs;
}

class PublishedTemplate : public testing::TestWithParam<std::string> {};

TEST_P(PublishedTemplate, GivesTransformersBytesAndMaskForEveryConversation) {
  const Json golden = golden::read_json("goldens/" + GetParam() + ".json");
  const Json shapes = golden::read_json("goldens/shapes.json");
  const ChatTemplate chat = load_form(GetParam(), golden);
  ASSERT_EQ(golden["cases"].size(), shapes.size());
  for (const Json& expected : golden["cases"]) {
    const std::string shape = expected["shape"];
    SCOPED_TRACE(shape);
    RenderedChat rendered;
    try {
      rendered = chat.render(shape_inputs(shapes[shape]));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_TRUE(expected.contains("error")) << error.what();
      EXPECT_NE(std::string(error.what()).find(expected.value("error", "")), std::string::npos) << error.what();
      continue;
    }
    ASSERT_TRUE(expected.contains("text")) << rendered.text;
    EXPECT_EQ(rendered.text, expected["text"].get<std::string>());
    std::vector<std::string> answers, expected_answers;
    for (const TrainedSpan& span : rendered.trained) {
      answers.push_back(
          fmt::format("{}-{} {}", span.begin, span.end, rendered.text.substr(span.begin, span.end - span.begin)));
    }
    for (const Json& span : expected["trained"]) {
      const size_t begin = span[0], end = span[1];
      expected_answers.push_back(fmt::format("{}-{} {}", begin, end, rendered.text.substr(begin, end - begin)));
    }
    EXPECT_EQ(answers, expected_answers);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PublishedTemplate, testing::ValuesIn(forms()),
                         [](const auto& name) { return name.param; });

TEST(ChatTemplate, ThereAreAtLeastTwelveFormsAndFifteenConversations) {
  EXPECT_GE(forms().size(), 12u);
  EXPECT_GE(golden::read_json("goldens/shapes.json").size(), 15u);
}

class ModelDirectory : public testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((directory_ / name).parent_path());
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }
  std::string render(Json tools = nullptr) const {
    return ChatTemplate::load(directory_.string())
        .render({.messages = {{{"role", "user"}, {"content", "x"}}}, .tools = std::move(tools)})
        .text;
  }
  std::string load_error() const {
    try {
      ChatTemplate::load(directory_.string());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      return error.what();
    }
    return "";
  }

  std::filesystem::path directory_;
};

TEST_F(ModelDirectory, TakesTheTemplateOfTheConfigAndItsTokensInBothSpellings) {
  write("tokenizer_config.json",
        R"({"chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}",
    "bos_token": "<s>", "eos_token": {"content": "</s>", "special": true}, "pad_token": null})");
  EXPECT_EQ(render(), "<s>x</s>");
}

TEST_F(ModelDirectory, PrefersTheTemplateFileToTheConfig) {
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  write("chat_template.jinja", "file\n");
  EXPECT_EQ(render(), "file");
}

TEST_F(ModelDirectory, ChoosesAmongNamedTemplatesAsTransformersDoes) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(render(), "plain");
  EXPECT_EQ(render(Json::array()), "tools");
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "rag", "template": "rag"}, {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(render(), "plain");
  EXPECT_EQ(render(Json::array()), "plain");
}

TEST_F(ModelDirectory, WithNamedTemplatesAndNoDefaultSaysSo) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "rag"}]})");
  try {
    render();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_NE(std::string(error.what()).find("none named \"default\""), std::string::npos) << error.what();
  }
}

TEST_F(ModelDirectory, ReadsAdditionalTemplateFiles) {
  write("chat_template.jinja", "plain");
  write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(render(), "plain");
  EXPECT_EQ(render(Json::array()), "tools");
}

TEST_F(ModelDirectory, WithoutATemplateSaysWhereItLooked) {
  write("tokenizer_config.json", "{}");
  EXPECT_NE(load_error().find("chat_template.jinja"), std::string::npos);
}

TEST_F(ModelDirectory, WithABadTemplateNamesFileAndLine) {
  write("chat_template.jinja", "ok\n{% if x %}\n{{ 1 + }}\n{% endif %}");
  EXPECT_NE(load_error().find("chat_template.jinja, line 3"), std::string::npos) << load_error();
}

TEST_F(ModelDirectory, WithAMalformedConfigSaysSo) {
  write("tokenizer_config.json", "{\"chat_template\": ");
  EXPECT_NE(load_error().find("is not valid JSON"), std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_NE(load_error().find("has to be a string or a list"), std::string::npos);
}

TEST(ChatTemplate, RefusesConversationsThatAreNone) {
  const ChatTemplate chat("{{ messages }}", "t");
  for (const Json& messages : {Json(nullptr), Json::array(), Json::object(), Json::array({"text"})}) {
    EXPECT_THROW(chat.render({.messages = messages}), Error);
  }
}

TEST(ChatTemplate, ReasoningIsReadUnderEachOfItsNames) {
  const ChatTemplate chat(
      "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}|{{ m.reasoning }};{% endfor %}", "t");
  const Json messages = {
      {{"role", "assistant"}, {"reasoning", "r"}},
      {{"role", "assistant"}, {"thinking", "t"}},
      {{"role", "assistant"}, {"reasoning_content", "c"}},
      {{"role", "assistant"}, {"thinking", nullptr}, {"reasoning_content", "n"}, {"reasoning", nullptr}},
      {{"role", "assistant"}, {"content", "c"}}};
  EXPECT_EQ(chat.render({.messages = messages}).text, "r|r|r;t|t|t;c|c|c;n|n|n;||;");
}

}  // namespace
}  // namespace megatrain
