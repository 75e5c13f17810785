// Which bytes of a conversation are trained, with templates written to be hard cases. chat_template_test.cc has the
// published ones.
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "megatrain/chat/chat_template.h"
#include "tests/support/template_goldens.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;
using Answers = std::vector<std::string>;

Answers answers_of(const RenderedChat& rendered) {
  Answers out;
  for (const TrainedSpan& span : rendered.trained)
    out.push_back(rendered.text.substr(span.begin, span.end - span.begin));
  return out;
}

RenderedChat masked(const std::string& source, const Json& messages, std::vector<std::string> special = {"<e>"},
                    const std::string& eos = "") {
  std::vector<std::pair<std::string, std::string>> named;
  if (!eos.empty()) named.emplace_back("eos_token", eos);
  ChatTemplate chat(source, "t", named);
  chat.add_special_tokens(special);
  return chat.render({.messages = messages});
}

Answers answers(const std::string& source, const Json& messages, std::vector<std::string> special = {"<e>"},
                const std::string& eos = "") {
  return answers_of(masked(source, messages, std::move(special), eos));
}

Json message(const std::string& role, const std::string& content) { return {{"role", role}, {"content", content}}; }

const Json kTalk = {{{"role", "user"}, {"content", "q<e>"}},
                    {{"role", "assistant"}, {"content", "  a<e>b  "}},
                    {{"role", "user"}, {"content", "a<e>b"}},
                    {{"role", "assistant"}, {"content", "c"}}};

const Json kPlain = {message("user", "one"), message("assistant", "two"), message("user", "three"),
                     message("assistant", "four")};

TEST(ChatMask, FollowsContentThroughFiltersMethodsAndMacros) {
  const std::vector<std::string> expected = {"A*B<e>", "C<e>"};
  EXPECT_EQ(answers("{% macro say(t) %}{{ t | trim | upper }}{% endmacro %}{% for m in messages %}[{{ m.role }}]{{ "
                    "say(m.content.split('<e>') | join('*')) }}<e>\n{% endfor %}"
                    "{% if add_generation_prompt %}[assistant]{% endif %}",
                    kTalk),
            expected);
}

TEST(ChatMask, FollowsAConversationBuiltInAVariableAndPrintedAtTheEnd) {
  const std::vector<std::string> expected = {"  a<e>b  <e>", "c<e>"};
  EXPECT_EQ(answers("{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t ~ '<' ~ m.role ~ '>' ~ "
                    "m.content ~ '<e>' %}{% endfor %}{{ ns.t }}"
                    "{% if add_generation_prompt %}<assistant>{% endif %}",
                    kTalk),
            expected);
}

TEST(ChatMask, FollowsMessagesTakenByIndex) {
  const std::vector<std::string> expected = {"  a<e>b  <e>", "c<e>"};
  EXPECT_EQ(
      answers(
          "{% for i in range(messages|length) %}{% set m = messages[i] %}<{{ m.role }}>{{ m.content }}<e>{% endfor %}"
          "{% if add_generation_prompt %}<assistant>{% endif %}",
          kTalk),
      expected);
}

TEST(ChatMask, LeavesTheRoleOutWhereTheTemplateHasNoGenerationPrompt) {
  const std::vector<std::string> expected = {"  a<e>b  <e>", "c<e>"};
  EXPECT_EQ(answers("{% for m in messages %}<{{ m.role }}>\n{{ m.content }}<e>\n{% endfor %}", kTalk), expected);
}

TEST(ChatMask, EndsWithVisibleTextWhereNoTokenIsKnown) {
  const std::vector<std::string> expected = {"  a<e>b  [end]", "c[end]"};
  EXPECT_EQ(answers("{% for m in messages %}{{ m.role }}: {{ m.content }}[end]\n{% endfor %}{% if "
                    "add_generation_prompt %}assistant: {% endif %}",
                    kTalk, {}),
            expected);
}

TEST(ChatMask, TakesAllTokensThatCloseATurnAndNoneOfTheNextHeader) {
  const Json messages = {{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", "a"}}};
  const std::vector<std::string> expected = {"a<call_end><e>"};
  EXPECT_EQ(answers("{% for m in messages %}<h>{{ m.role }}<x>{{ m.content }}<call_end><e>{% if loop.last "
                    "%}<h>assistant<x>{% endif %}{% endfor %}",
                    messages, {"<h>", "<x>", "<call_end>", "<e>"}),
            expected);
}

TEST(ChatMask, NumbersAndNamesOfToolCallsAreTheAssistants) {
  const Json messages = {{{"role", "user"}, {"content", "q"}},
                         {{"role", "assistant"}, {"tool_calls", {{{"n", 3}, {"deep", {1, 2}}}}}}};
  const std::vector<std::string> expected = {"CALL 3 [1, 2] {\"n\": 3, \"deep\": [1, 2]}<e>"};
  EXPECT_EQ(answers("{% for m in messages %}<h>{{ m.content }}{% for c in m.tool_calls or [] %}CALL {{ c.n }} {{ "
                    "c.deep }} {{ c | tojson }}{% endfor %}<e>{% endfor %}"
                    "{% if add_generation_prompt %}<h>{% endif %}",
                    messages),
            expected);
}

TEST(ChatMask, SpansNameTheirMessage) {
  ChatTemplate chat("{% for m in messages %}<{{ m.role }}>{{ m.content }}<e>{% endfor %}", "t");
  chat.add_special_tokens({"<e>"});
  const RenderedChat rendered = chat.render({.messages = kTalk});
  ASSERT_EQ(rendered.trained.size(), 2u);
  EXPECT_EQ(rendered.trained[0].message, 1);
  EXPECT_EQ(rendered.trained[1].message, 3);
}

// ---- turns ----

const Json kCalls = {message("user", "one"),
                     {{"role", "assistant"}, {"content", ""}, {"tool_calls", {{{"id", "7"}, {"name", "clock"}}}}},
                     {{"role", "tool"}, {"content", "noon"}, {"call", "7"}},
                     {{"role", "assistant"}, {"content", "two"}, {"reasoning", "because"}},
                     message("user", "three"),
                     message("assistant", "four")};

// Writes the list of messages that `build` leaves in ns.ms.
Answers answers_over(const std::string& build, const Json& messages = kCalls) {
  return answers("{% set ns = namespace(ms=[]) %}" + build +
                     "{% for m in ns.ms %}{% if m.role == 'user' %}[Q]{{ m.content }}[/Q]{% elif m.role == 'tool' %}"
                     "[R]{{ m.content }}[/R]{% else %}{% if m.reasoning %}[THINK]{{ m.reasoning }}[/THINK]{% endif %}"
                     "{{ m.content }}{% for c in m.tool_calls or [] %}[CALL]{{ c.name }}[ARGS]{}{% endfor %}<e>"
                     "{% endif %}{% endfor %}",
                 messages, {"[Q]", "[/Q]", "[R]", "[/R]", "[THINK]", "[/THINK]", "[CALL]", "[ARGS]", "<e>"}, "<e>");
}

TEST(ChatMask, AListThatTheTemplateRebuiltHasTheTurnsOfItsMessages) {
  const Answers expected = {"[CALL]clock[ARGS]{}<e>", "[THINK]because[/THINK]two<e>", "four<e>"};
  const std::string each = "{% for m in messages %}{% set ns.ms = ns.ms + [";
  EXPECT_EQ(answers_over("{% set ns.ms = messages %}"), expected);
  EXPECT_EQ(answers_over(each + "m] %}{% endfor %}"), expected);
  EXPECT_EQ(answers_over(each + "{'role': m.role, 'content': m.content, 'reasoning': m.reasoning, 'tool_calls': "
                                "m.tool_calls}] %}{% endfor %}"),
            expected);
  EXPECT_EQ(answers_over(each + "{'role': 'user' if m.role == 'user' else ('tool' if m.role == 'tool' else 'model'), "
                                "'content': m.content, 'reasoning': m.reasoning, 'tool_calls': m.tool_calls}] %}"
                                "{% endfor %}"),
            expected);
  EXPECT_EQ(answers_over(each + "dict(m, extra=1)] %}{% endfor %}"), expected);
  EXPECT_EQ(answers_over(each + "m.copy()] %}{% endfor %}"), expected);
}

TEST(ChatMask, ALoopOverPairsMadeOfMessagesHasNoTurnsAndTheSameMask) {
  const std::string pairs =
      "{% set ns = namespace(pairs=[]) %}{% for m in messages %}{% set ns.pairs = ns.pairs + [(m.role, m.content, "
      "m.tool_calls)] %}{% endfor %}{% for role, content, calls in ns.pairs %}<h>{{ role }}\n{{ content }}{% for c in "
      "calls or [] %}<call>{{ c.name }}{% endfor %}<e>\n{% endfor %}{% if add_generation_prompt %}<h>assistant\n"
      "{% endif %}";
  EXPECT_EQ(answers(pairs, kPlain, {"<h>", "<e>"}), (Answers{"two<e>", "four<e>"}));
  EXPECT_EQ(answers(pairs, kCalls, {"<h>", "<e>"}), (Answers{"<call>clock<e>", "two<e>", "four<e>"}));
  EXPECT_EQ(answers(pairs, {kCalls[0], kCalls[1], kCalls[2], kCalls[3]}, {"<h>", "<e>"}),
            (Answers{"<call>clock<e>", "two<e>"}));
}

TEST(ChatMask, MessagesThatTheTemplateMergesAreOneTurnAndEachKeepsItsOwnText) {
  const std::string merge =
      "{% set group = namespace(role='', parts=[]) %}{% for m in messages + [{'role': 'end'}] %}{% if m.role != "
      "group.role %}{% if group.role %}{% set ns.ms = ns.ms + [{'role': group.role, 'content': group.parts | "
      "join('\n')}] %}{% endif %}{% set group.role = m.role %}{% set group.parts = [] %}{% endif %}"
      "{% set group.parts = group.parts + [m.content] %}{% endfor %}";
  const Json messages = {message("user", "one"), message("assistant", "two"), message("assistant", "three"),
                         message("user", "four"), message("assistant", "five")};
  EXPECT_EQ(answers_over(merge, messages), (Answers{"two\n", "three<e>", "five<e>"}));
}

TEST(ChatMask, AMessageThatAnIndexedLoopLooksAtDoesNotTakeTheTurn) {
  const std::string end =
      "<{{ m.role }}>{{ m.content }}<e>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  for (const char* const sets : {"{% set m = messages[i] %}{% set last = messages[i - 1] %}",
                                 "{% set last = messages[i - 1] %}{% set m = messages[i] %}",
                                 "{% set m = messages[i] %}{% set next = messages[i + 1] %}"}) {
    EXPECT_EQ(answers(std::string("{% for i in range(messages | length) %}") + sets + end, kPlain),
              (Answers{"two<e>", "four<e>"}))
        << sets;
  }
}

TEST(ChatMask, WhatATurnQuotesByALoopOverTheMessagesIsNotTrainedThere) {
  const std::string named =
      "{% macro name_of(id) %}{% for m in messages %}{% for c in m.tool_calls or [] if c.id == id %}{{ c.name }}"
      "{% endfor %}{% endfor %}{% endmacro %}{% for m in messages %}{% if m.role == 'tool' %}<tool>{{ name_of(m.call) "
      "}}<result>{{ m.content }}<e>{% else %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ "
      "c.name }}{% endfor %}<e>{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_EQ(answers(named, kCalls, {"<e>", "<user>", "<assistant>", "<tool>", "<call>", "<result>"}),
            (Answers{"<call>clock<e>", "two<e>", "four<e>"}));
}

// ---- ends that are written with the next message ----

TEST(ChatMask, AnEndTokenWrittenWithTheNextMessageIsTrained) {
  // Between all messages: either the end-of-text token, or another token that only the conversation reveals to be an
  // end.
  const std::string between =
      "{% for m in messages %}{% if not loop.first %}<e>\n{% endif %}<h>{{ m.role }}\n{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<e>\n<h>assistant\n{% endif %}";
  EXPECT_EQ(answers(between, kPlain, {"<e>", "<h>"}, "<e>"), (Answers{"two<e>", "four"}));
  EXPECT_EQ(answers(between, kPlain, {"<e>", "<h>"}), (Answers{"two<e>", "four"}));
  // With the user's message, as in prompts for Llama 2.
  EXPECT_EQ(
      answers("{% for m in messages %}{% if m.role == 'user' %}{% if not loop.first %}</s>{% endif %}<s>[INST] {{ "
              "m.content }} [/INST]{% else %} {{ m.content }} {% endif %}{% endfor %}",
              kPlain, {"<s>"}, "</s>"),
      (Answers{" two </s>", " four"}));
  // After the last message too, once it is complete.
  EXPECT_EQ(answers(between + "{% if not add_generation_prompt %}<e>{% endif %}", kPlain, {"<e>", "<h>"}, "<e>"),
            (Answers{"two<e>", "four<e>"}));
}

TEST(ChatMask, AHeaderOfTheNextMessageIsNoEnd) {
  const std::string headers =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if "
      "add_generation_prompt %}<assistant>{% endif %}";
  const Json messages = {message("user", "one"),       message("assistant", "two"), message("tool", "three"),
                         message("assistant", "four"), message("user", "five"),     message("assistant", "six")};
  EXPECT_EQ(answers(headers, messages, {"<user>", "<assistant>", "<tool>"}), (Answers{"two", "four", "six"}));
}

TEST(ChatMask, TheStopBehindACallIsTrainedAlsoWhereTheResultFollowsIt) {
  // The turn of a tool call includes its results. Without results it ends with the token that requests one.
  const std::string looks_ahead =
      "{% for m in messages %}{% if m.role != 'tool' %}<turn>{{ m.role }}\n{% set ns = namespace(result=false) %}{% "
      "for "
      "c in m.tool_calls or [] %}<call>{{ c.name }}</call>{% endfor %}{% if m.tool_calls %}{% for k in "
      "range(loop.index, messages | length) if messages[k].role == 'tool' and messages[k].call == m.tool_calls[0].id "
      "%}{% set r = messages[k] %}<result>{{ m.tool_calls[0].name }}={{ r.content }}</result>{% set ns.result = true %}"
      "{% endfor %}{% endif %}{{ m.content }}{% if m.tool_calls and not ns.result %}<result>{% elif m.content "
      "%}</turn>\n{% endif %}{% endif %}{% endfor %}{% if add_generation_prompt %}<turn>assistant\n{% endif %}";
  const std::vector<std::string> special = {"<turn>", "</turn>", "<call>", "</call>", "<result>", "</result>"};
  EXPECT_EQ(answers(looks_ahead, kCalls, special, "</turn>"),
            (Answers{"<call>clock</call><result>", "two</turn>", "four</turn>"}));
  EXPECT_EQ(answers(looks_ahead, {kCalls[0], kCalls[1]}, special, "</turn>"), (Answers{"<call>clock</call><result>"}));
  Json talking = kCalls;
  talking[1]["content"] = "Done.";
  ChatTemplate chat(looks_ahead, "t", {{"eos_token", "</turn>"}});
  chat.add_special_tokens(special);
  chat.add_end_tokens({"<result>"});
  EXPECT_EQ(answers_of(chat.render({.messages = talking})),
            (Answers{"<call>clock</call><result>", "Done.</turn>", "two</turn>", "four</turn>"}));
}

TEST(ChatMask, TheHeaderBetweenTwoAnswersIsNoEnd) {
  const std::string headers =
      "{% for m in messages %}<{{ m.role }}>\n{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>"
      "{% endif %}";
  const Json messages = {message("user", "one"), message("assistant", "two"), message("assistant", "three"),
                         message("user", "four"), message("assistant", "five")};
  EXPECT_EQ(answers(headers, messages, {"<user>", "<assistant>"}, "<user>"),
            (Answers{"\ntwo", "\nthree<user>", "\nfive"}));
}

TEST(ChatMask, AnEndOfSeveralTokensAndWordsIsTrainedWhole) {
  const std::string tags =
      "{% for m in messages %}<open>message {{ m.role }}<sep>{% if m.role == 'assistant' %}<open>think<sep>"
      "{{ m.reasoning }}<close>think<sep><open>answer<sep>{{ m.content }}<close>answer<sep>{% else %}{{ m.content }}"
      "{% endif %}<close>message<sep><end>{% endfor %}{% if add_generation_prompt %}<open>message assistant<sep>"
      "<open>think<sep>{% endif %}";
  const Json messages = {message("user", "one"),
                         {{"role", "assistant"}, {"content", "two"}, {"reasoning", "because"}},
                         message("assistant", "three"),
                         message("user", "four"),
                         message("assistant", "five")};
  const std::string close = "<close>answer<sep><close>message<sep><end>";
  EXPECT_EQ(
      answers(tags, messages, {"<open>", "<sep>", "<close>", "<end>"}),
      (Answers{"because<close>think<sep><open>answer<sep>two" + close,
               "<close>think<sep><open>answer<sep>three" + close, "<close>think<sep><open>answer<sep>five" + close}));
}

// ---- content in several places ----

TEST(ChatMask, ContentWrittenInTwoPlacesIsTrainedInBoth) {
  EXPECT_EQ(
      answers("{% for m in messages %}[{{ m.role }}]{{ m.content }}<e>\n{% endfor %}LAST: {{ messages[-1].content "
              "}}<e>{% if add_generation_prompt %}[assistant]{% endif %}",
              kPlain),
      (Answers{"two<e>", "four<e>", "four<e>"}));
  const Json thinking = {message("user", "one"),
                         {{"role", "assistant"}, {"content", "two"}, {"reasoning_content", "because"}}};
  EXPECT_EQ(
      answers("{% for m in messages %}{{ m.role }}={{ m.reasoning_content }};{% endfor %}{% for m in messages %}{{ "
              "m.role }}:{{ m.content }}<e>{% endfor %}",
              thinking),
      (Answers{"because;", "two<e>"}));
  // Without a loop there are no turns. Every run of an answer's bytes is trained, and nothing of the question between
  // them.
  EXPECT_EQ(
      answers("Q: {{ messages[0].content }}\nA: {{ messages[1].content }}<e>\nQ: {{ messages[0].content }}\nA: {{ "
              "messages[1].content }}<e>",
              {message("user", "one"), message("assistant", "two")}),
      (Answers{"two<e>", "two<e>"}));
}

TEST(ChatMask, AnAnswerQuotedInAnothersTurnIsNotTrainedThere) {
  EXPECT_EQ(answers("{% for m in messages %}[{{ m.role }}]{% if m.role == 'user' and not loop.first %}You said {{ "
                    "messages[loop.index0 - 1].content }}. {% endif %}{{ m.content }}<e>{% endfor %}",
                    kPlain),
            (Answers{"two<e>", "four<e>"}));
}

// ---- headers ----

TEST(ChatMask, AHeaderThatIsNotTheGenerationPromptIsNotTrained) {
  for (const char* const prompt : {"", "ASSISTANT:", "<h>ASSISTANT\n", "### Response:\n", "<h>assistant now\n"}) {
    for (const char* const header : {"Assistant: ", "<h>assistant\n", "### Answer:\n\n", "<h>bot<x>"}) {
      const std::string source = fmt::format(
          "{{% for m in messages %}}{{% if m.role == 'user' %}}<h>user\n{{{{ m.content }}}}<e>\n{{% else %}}{}{{{{ "
          "m.content "
          "}}}}<e>\n{{% endif %}}{{% endfor %}}{{% if add_generation_prompt %}}{}{{% endif %}}",
          header, prompt);
      EXPECT_EQ(answers(source, kPlain, {"<e>", "<h>", "<x>"}), (Answers{"two<e>", "four<e>"})) << source;
    }
  }
}

TEST(ChatMask, TheTextThatOpensAToolCallIsTrainedWhateverThePrompt) {
  const Json messages = {message("user", "one"),
                         {{"role", "assistant"}, {"tool_calls", {{{"name", "f"}}}}},
                         message("user", "two"),
                         message("assistant", "three")};
  for (const char* const prompt : {"", "<h>assistant\n", "<h>assistant\n<think>\n\n</think>\n\n", "ASSISTANT:"}) {
    const std::string source = fmt::format(
        "{{% for m in messages %}}<h>{{{{ 'assistant' if m.role == 'assistant' else 'user' }}}}\n{{% if m.tool_calls "
        "%}}<call>{{{{ m.tool_calls[0].name }}}}</call>{{% else %}}{{{{ m.content }}}}{{% endif %}}<e>\n{{% endfor "
        "%}}{{% if "
        "add_generation_prompt %}}{}{{% endif %}}",
        prompt);
    EXPECT_EQ(answers(source, messages, {"<e>", "<h>"}), (Answers{"<call>f</call><e>", "three<e>"})) << source;
  }
}

// Turns that do not begin with their generation prompt.
TEST(ChatMask, AnAnswerBeginsBehindAPromptWhoseLastSpacesDiffer) {
  const std::string spaced =
      "{% for m in messages %}{% if m.role == 'assistant' %}\nASSISTANT:{% for c in m.tool_calls or [] %}<call>{{ "
      "c.name }}{% endfor %}{{ ' ' + m.content if m.content }}<e>{% else %}\nUSER: {{ m.content }}{% endif %}"
      "{% endfor %}{% if add_generation_prompt %}\nASSISTANT: {% endif %}";
  EXPECT_EQ(answers(spaced, kCalls, {"<e>", "<call>"}), (Answers{"<call>clock<e>", "two<e>", "four<e>"}));
}

TEST(ChatMask, AnAnswerBehindAToolBeginsWhereAPlainOneDoes) {
  // There is no call and no result: rendering with all answers as plain text shows no header after a tool message.
  const std::string closed =
      "{% set ns = namespace(asked='') %}{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}{% set "
      "ns.asked = '<a>' %}{% elif m.role == 'tool' %}\n<result>{{ m.content }}</result>{% if messages[loop.index0 - "
      "1].tool_calls %}{% set ns.asked = '\n\n' %}{% endif %}{% else %}{{ ns.asked }}{% if ns.asked %}</think>{% endif "
      "%}{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ c.name }}{% endfor %}<e>{% set ns.asked = '' %}"
      "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ ns.asked }}<think></think>{% endif %}";
  const RenderedChat chat = masked(closed, kCalls, {"<e>", "<u>", "<a>"}, "<e>");
  EXPECT_EQ(answers_of(chat), (Answers{"<call>clock<e>", "two<e>", "four<e>"}));
  EXPECT_TRUE(chat.sure);
}

TEST(ChatMask, AnAnswerThatStandsBehindTheLoopBeginsBehindItsPrompt) {
  const std::string apart =
      "{% for m in messages[:-1] if m.role != 'tool' %}<h>{{ m.role }}\n{{ m.content }}<e>\n{% endfor %}{% if "
      "messages[-1].role == 'assistant' %}<h>assistant\n{% if messages[-1].tool_calls %}<call>[{{ "
      "messages[-1].tool_calls[0].name }}]{% else %}<think>\n{{ messages[-1].content }}{% endif %}<e>\n{% else %}<h>{{ "
      "messages[-1].role }}\n{{ messages[-1].content }}<e>\n{% endif %}{% if add_generation_prompt %}<h>assistant\n"
      "<think>\n{% endif %}";
  EXPECT_EQ(answers(apart, {kCalls[0], kCalls[1]}, {"<e>", "<h>"}), (Answers{"<call>[clock]<e>"}));
  EXPECT_EQ(answers(apart, kPlain, {"<e>", "<h>"}), (Answers{"two<e>", "four<e>"}));
}

TEST(ChatMask, SaysWhereTheBeginningOfAnAnswerIsAGuess) {
  const std::string same =
      "{% for m in messages %}<h>{{ 'bot' if m.role == 'assistant' else 'user' }}\n{% if m.tool_calls %}<call>{{ "
      "m.tool_calls[0].name }}{% else %}{{ m.content }}{% endif %}<e>\n{% endfor %}{% if add_generation_prompt "
      "%}<h>bot\n{% endif %}";
  EXPECT_TRUE(masked(same, kCalls, {"<e>", "<h>"}).sure);
  // The turn of a call has a different header.
  const std::string other =
      "{% for m in messages %}<h>{% if m.tool_calls %}caller: <call>{{ m.tool_calls[0].name }}{% else %}{{ 'bot' if "
      "m.role == 'assistant' else 'user' }}\n{{ m.content }}{% endif %}<e>\n{% endfor %}{% if add_generation_prompt "
      "%}Go on:{% endif %}";
  EXPECT_FALSE(masked(other, kCalls, {"<e>", "<h>"}).sure);
}

// Headers, prompts, ends and ways of iterating over messages, in every combination.
TEST(ChatMask, TrainsContentAndEndAndNothingElseInEveryKindOfTemplate) {
  const Json messages = {message("system", "rules"), message("user", "one"),       message("assistant", "two"),
                         message("user", "three"),   message("tool", "four"),      message("assistant", "five"),
                         message("user", "six"),     message("assistant", "seven")};
  struct Header {
    std::string user, assistant;
  };
  const Header headers[] = {{"<h>' ~ m.role ~ '\n", "<h>' ~ m.role ~ '\n"}, {"USER: ", "ASSISTANT: "}, {"<u>", "<a>"}};
  const std::string prompts[] = {"{same}", "", "<p>Go on:"};
  enum class End { inside, next, next_unknown, none };
  int count = 0;
  for (const Header& header : headers) {
    for (const std::string& prompt : prompts) {
      for (const End end : {End::inside, End::next, End::next_unknown, End::none}) {
        for (const bool in_variable : {false, true}) {
          const std::string inside = end == End::inside ? "<e>\n" : "\n";
          const std::string before =
              end == End::next || end == End::next_unknown ? "('<e>' if not loop.first else '') ~ " : "";
          const std::string turn = before + "'" + "{H}' ~ m.content ~ '" + inside + "'";
          const auto with = [&](const std::string& which) {
            std::string text = turn;
            return text.replace(text.find("{H}"), 3, which);
          };
          const std::string print = in_variable ? "{% set ns.t = ns.t ~ (X) %}" : "{{ X }}";
          const auto printed = [&](const std::string& what) {
            std::string text = print;
            return text.replace(text.find('X'), 1, what);
          };
          std::string asks = prompt == "{same}" ? header.assistant : prompt;
          if (const size_t role = asks.find("' ~ m.role ~ '"); role != std::string::npos)
            asks.replace(role, 14, "assistant");
          if (!before.empty() && !asks.empty()) asks = "<e>" + asks;
          const std::string source =
              "{% set ns = namespace(t='') %}{% for m in messages %}{% if m.role == 'assistant' %}" +
              printed(with(header.assistant)) + "{% else %}" + printed(with(header.user)) +
              "{% endif %}{% endfor %}{{ ns.t }}{% if add_generation_prompt %}" + asks + "{% endif %}";
          const bool last_ends = end == End::inside;
          const std::string close = end == End::none ? "" : end == End::inside ? "<e>" : "\n<e>";
          const RenderedChat chat =
              masked(source, messages, {"<e>", "<h>", "<u>", "<a>", "<p>"}, end == End::next ? "<e>" : "");
          EXPECT_EQ(answers_of(chat), (Answers{"two" + close, "five" + close, last_ends ? "seven<e>" : "seven"}))
              << source;
          EXPECT_EQ(chat.ends, last_ends) << source;
          ++count;
        }
      }
    }
  }
  EXPECT_EQ(count, 72);
}

// ---- whether a model learns to stop ----

TEST(ChatMask, SaysWhetherSomethingThatEndsTheLastAnswerIsTrained) {
  const std::string with_end = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<e>{% endfor %}";
  const std::string without = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}";
  EXPECT_TRUE(masked(with_end, kPlain).ends);
  EXPECT_FALSE(masked(without, kPlain).ends);
  EXPECT_FALSE(
      masked("{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ '<e>' if not loop.last }}{% endfor %}", kPlain)
          .ends);
  EXPECT_TRUE(masked("{% for m in messages %}[{{ m.role }}]{{ m.content }}.END\n{% endfor %}", kPlain, {}).ends);
  EXPECT_FALSE(masked(without, kPlain, {}).ends);
  EXPECT_TRUE(
      masked("{% for m in messages %}{% generation %}{{ m.content }}<e>{% endgeneration %}{% endfor %}", kPlain).ends);
  EXPECT_FALSE(
      masked("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}<e>{% endfor %}", kPlain).ends);
  const Json asked = {message("assistant", "two"), message("user", "one")};
  EXPECT_TRUE(masked(with_end, asked).ends);
}

// ---- published templates, by properties ----

TEST(ChatMask, OfEveryPublishedTemplateOnlyAnswersAndTheirEndsAreTrained) {
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden::chat_folder() / "templates")) {
    const std::string name = entry.path().stem().string();
    const Json golden = golden::read_json("goldens/" + name + ".json");
    std::vector<std::pair<std::string, std::string>> tokens;
    for (const auto& [key, token] : golden["tokens"].items()) tokens.emplace_back(key, token.get<std::string>());
    ChatTemplate chat(golden::read_text("templates/" + name + ".jinja"), name, tokens);
    chat.add_special_tokens(golden["special"].get<std::vector<std::string>>());
    for (const int turns : {1, 2, 3, 7}) {
      SCOPED_TRACE(fmt::format("{} {}", name, turns));
      Json messages = Json::array();
      for (int i = 0; i < turns; ++i) {
        messages.push_back(message("user", fmt::format("question{}q", i)));
        messages.push_back(message("assistant", fmt::format("answer{}a", i)));
      }
      const RenderedChat rendered = chat.render({.messages = messages, .now = golden::fixed_time()});
      EXPECT_TRUE(rendered.ends);
      ASSERT_EQ(rendered.trained.size(), static_cast<size_t>(turns));
      std::string rest = rendered.text;
      for (int i = turns; i-- > 0;) {
        const TrainedSpan& span = rendered.trained[static_cast<size_t>(i)];
        const std::string answer = rendered.text.substr(span.begin, span.end - span.begin);
        EXPECT_EQ(span.message, 2 * i + 1);
        const size_t at = answer.find(fmt::format("answer{}a", i));
        EXPECT_NE(at, std::string::npos) << answer;
        EXPECT_EQ(answer.find("question"), std::string::npos) << answer;
        EXPECT_EQ(answer.substr(0, at).find("ssistant"), std::string::npos) << answer;
        EXPECT_TRUE(answer.ends_with('>')) << answer;
        rest.erase(span.begin, span.end - span.begin);
        ++checked;
      }
      EXPECT_EQ(rest.find("answer"), std::string::npos) << rest;
    }
  }
  EXPECT_GE(checked, 18 * 13);
}

// ---- long conversations ----

// Rendering dominates the cost: with one rendering per answer, 4000 answers would render 8 million turns.
TEST(ChatMask, ALongConversationIsRenderedAFixedNumberOfTimes) {
  const std::string source =
      "{% for m in messages %}<h>{{ m.role }}\n{{ m.content }}<e>\n{% endfor %}{% if add_generation_prompt "
      "%}<h>assistant\n{% endif %}";
  ChatTemplate chat(source, "t");
  chat.add_special_tokens({"<e>", "<h>"});
  Json messages = Json::array();
  for (int i = 0; i < 4000; ++i) {
    messages.push_back(message("user", "q"));
    messages.push_back(message("assistant", "a"));
  }
  const RenderedChat rendered = chat.render({.messages = messages});
  EXPECT_EQ(rendered.trained.size(), 4000u);
  EXPECT_LE(rendered.renderings, 8);
  for (const std::string& answer : answers_of(rendered)) ASSERT_EQ(answer, "a<e>");
}

}  // namespace
}  // namespace megatrain
