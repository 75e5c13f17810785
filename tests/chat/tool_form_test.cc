// Tool calls both ways: what a template writes for a call is read back as that call.
#include "megatrain/chat/tool_form.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/template_goldens.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ToolForm::Kind;

Json tool(const std::string& name, const Json& properties) {
  return {{"type", "function"},
          {"function",
           {{"name", name}, {"description", "d"}, {"parameters", {{"type", "object"}, {"properties", properties}}}}}};
}

const Json kTools = {tool("get_weather", {{"city", {{"type", "string"}}}, {"days", {{"type", "integer"}}}}),
                     tool("add", {{"a", {{"type", "number"}}}, {"b", {{"type", "number"}}}})};

Json call(const std::string& name, const Json& arguments, const std::string& id) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

// The text of an answer with these calls, without the prompt before it.
std::string written(const ChatTemplate& chat, const Json& calls) {
  const Json user = {{"role", "user"}, {"content", "Hello"}};
  const std::string prompt =
      chat.render({.messages = Json::array({user}), .tools = kTools, .add_generation_prompt = true}).text;
  const std::string all =
      chat.render(
              {.messages = {user, {{"role", "assistant"}, {"content", ""}, {"tool_calls", calls}}}, .tools = kTools})
          .text;
  size_t shared = 0;
  while (shared < prompt.size() && shared < all.size() && prompt[shared] == all[shared]) ++shared;
  return all.substr(shared);
}

void expect_calls(const ToolAnswer& answer, const Json& calls) {
  ASSERT_EQ(answer.calls.size(), calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(answer.calls[i].name, calls[i]["function"]["name"].get<std::string>());
    EXPECT_EQ(nlohmann::json::parse(answer.calls[i].arguments),
              nlohmann::json::parse(calls[i]["function"]["arguments"].dump()));
  }
}

const Json kCity = {{"city", "Zürich \"west\" {1}"}, {"days", 3}};

struct Case {
  const char* file;
  Kind kind;
  const char* mark;
  size_t most_calls;
};

class ToolForms : public testing::TestWithParam<Case> {};

TEST_P(ToolForms, CallsAreReadAsTheTemplateWritesThem) {
  const Case& c = GetParam();
  const ChatTemplate chat(golden::read_text(std::string("templates/") + c.file), c.file,
                          {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  const ToolForm form = ToolForm::learn(chat);
  EXPECT_TRUE(form.shows_tools);
  EXPECT_EQ(form.kind, c.kind);
  EXPECT_EQ(form.mark(), c.mark);
  EXPECT_FALSE(form.arguments_as_text);
  Json calls = Json::array({call("get_weather", kCity, "abcdefgh1")});
  expect_calls(form.read(written(chat, calls), kTools), calls);
  if (c.most_calls < 2) return;
  calls.push_back(call("add", {{"a", 1}, {"b", -2.5}}, "abcdefgh2"));
  expect_calls(form.read(written(chat, calls), kTools), calls);
  const std::string call_only = written(chat, calls);
  const ToolAnswer with_text = form.read("Let me look. " + call_only.substr(call_only.find(c.mark)), kTools);
  EXPECT_EQ(with_text.content, "Let me look. ");
  expect_calls(with_text, calls);
}

INSTANTIATE_TEST_SUITE_P(Published, ToolForms,
                         testing::Values(Case{"qwen25.jinja", Kind::object, "<tool_call>", 2},
                                         Case{"qwen3.jinja", Kind::object, "<tool_call>", 2},
                                         Case{"llama3_tools.jinja", Kind::object, "", 1},
                                         Case{"mistral_v3.jinja", Kind::object, "[TOOL_CALLS][", 2}),
                         [](const auto& info) {
                           const std::string name = info.param.file;
                           return name.substr(0, name.find('.'));
                         });

constexpr const char* kXml =
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}\n<tool_call>\n<function={{ c.function.name }}>\n"
    "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n"
    "{{ v if v is string else v | tojson }}\n</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

TEST(ToolForm, ArgumentsBetweenTagsAreReadByTheToolsTypes) {
  const ChatTemplate chat(kXml, "xml");
  const ToolForm form = ToolForm::learn(chat);
  EXPECT_EQ(form.kind, Kind::fields);
  EXPECT_EQ(form.mark(), "<tool_call>\n<function=");
  const Json calls = {call("get_weather", {{"city", "12"}, {"days", 3}}, ""), call("add", {{"a", 1.5}, {"b", -2}}, "")};
  expect_calls(form.read(written(chat, calls), kTools), calls);
  const Json none = Json::array({call("add", Json::object(), "")});
  expect_calls(form.read(written(chat, none), kTools), none);
  EXPECT_FALSE(form.frame("add"));
}

TEST(ToolForm, ANameBeforeItsArgumentsIsRead) {
  const ChatTemplate chat(
      "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}"
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}[TOOL_CALLS]"
      "{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}</s>{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}",
      "named", {{"eos_token", "</s>"}});
  const ToolForm form = ToolForm::learn(chat);
  EXPECT_EQ(form.kind, Kind::named);
  EXPECT_EQ(form.mark(), "[TOOL_CALLS]");
  const Json calls = {call("get_weather", kCity, ""), call("add", {{"a", 1}}, "")};
  expect_calls(form.read(written(chat, calls), kTools), calls);
  ASSERT_TRUE(form.frame("add"));
  EXPECT_EQ(form.frame("add")->before, "add[ARGS]");
}

TEST(ToolForm, TemplatesThatJoinTextsGetArgumentsAsText) {
  const ChatTemplate chat(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}"
      "<call>{{ c.function.name + '\\n' + c.function.arguments }}</call>{% endfor %}</s>{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}",
      "texts");
  const ToolForm form = ToolForm::learn(chat);
  EXPECT_TRUE(form.arguments_as_text);
  EXPECT_FALSE(form.shows_tools);
  expect_calls(form.read("<call>add\n{\"a\": 1}</call>", kTools), Json::array({call("add", {{"a", 1}}, "")}));
}

TEST(ToolForm, ChannelsBecomeFields) {
  const ChatTemplate chat(
      "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}"
      "{% for m in messages %}<|start|>{{ m.role }}{% for c in m.tool_calls or [] %} to=functions.{{ c.function.name }}"
      "<|channel|>commentary json<|message|>{{ c.function.arguments | tojson }}<|call|>{% endfor %}"
      "{% if m.content %}<|channel|>final<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
      "channels");
  const ToolForm form = ToolForm::learn(chat);
  EXPECT_EQ(form.kind, Kind::channels);
  const ToolAnswer answer = form.read(
      "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
      "<|constrain|>json<|message|>{\"city\": \"Bern\"}",
      kTools);
  EXPECT_EQ(answer.reasoning, "hm");
  EXPECT_EQ(answer.content, "");
  expect_calls(answer, Json::array({call("get_weather", {{"city", "Bern"}}, "")}));
  const ToolAnswer text = form.read(
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>", kTools);
  EXPECT_EQ(text.content, "Hello");
  EXPECT_TRUE(text.calls.empty());
}

TEST(ToolForm, WhatIsNoCallStaysText) {
  const ToolForm hermes = ToolForm::learn(ChatTemplate(golden::read_text("templates/qwen25.jinja"), "qwen25"));
  const ToolForm bare = ToolForm::learn(ChatTemplate(golden::read_text("templates/llama3_tools.jinja"), "llama"));
  const ToolForm none = ToolForm::learn(ChatTemplate(golden::read_text("templates/gemma.jinja"), "gemma"));
  EXPECT_EQ(none.kind, Kind::none);
  EXPECT_FALSE(none.shows_tools);
  const std::string deep = "<tool_call>\n{\"name\": \"add\", \"arguments\": " + std::string(100'000, '[');
  for (const std::string& text : {std::string("plain"), std::string(), std::string("<tool_call>"), deep,
                                  std::string("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}"),
                                  std::string("<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"),
                                  std::string("<tool_call>\n{\"name\": 5, \"arguments\": {}}\n</tool_call>"),
                                  std::string("<tool_call>\n{\"name\": \"add\", \"arguments\": 5}\n</tool_call>"),
                                  std::string("<tool_call>\n{'name': 'add'}\n</tool_call>"),
                                  std::string("{\"name\": \"add\"}"), std::string("{\"a\": 1} and more")}) {
    for (const ToolForm* form : {&hermes, &bare, &none}) {
      const ToolAnswer answer = form->read(text, kTools);
      EXPECT_TRUE(answer.calls.empty()) << text.substr(0, 100);
      EXPECT_EQ(answer.content, text);
    }
  }
}

}  // namespace
}  // namespace megatrain
