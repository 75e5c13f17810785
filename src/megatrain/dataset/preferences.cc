#include "megatrain/dataset/preferences.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kHuman = "\n\nHuman:", kAssistant = "\n\nAssistant:";  // of a dialogue in one text

// How messages name their role, content and the two speakers, and the column that such a list is read from.
struct Style {
  const char *column, *role, *content, *user, *assistant;
};
constexpr Style kStyles[] = {{"messages", "role", "content", "user", "assistant"},
                             {"conversations", "from", "value", "human", "gpt"}};

// A column with a question, and the column its answer is read from.
struct Question {
  const char *column, *answer;
};
constexpr Question kQuestions[] = {{"prompt", "completion"},
                                   {"question", "answer"},
                                   {"instruction", "output"},
                                   {"query", "response"},
                                   {"problem", "solution"}};
constexpr Question kInput = {"input", "output"};  // next to another question column it is additional input

// A jq filter that assembles the chosen conversation, and the columns to delete. All other columns stay, so that system
// messages and tools are read, and columns that are not read get their warning.
struct Better {
  std::string filter;
  std::vector<std::string> gone;
};

// Null if it is absent or null.
const Json* value_of(const Json& sample, std::string_view key) {
  const auto found = sample.is_object() ? sample.find(key) : sample.end();
  return found == sample.end() || found->is_null() ? nullptr : &*found;
}

bool is_text(const Json* value) { return value != nullptr && value->is_string(); }

bool is_dialogue(const Json* value) {
  return is_text(value) && value->get_ref<const std::string&>().starts_with(kHuman) &&
         value->get_ref<const std::string&>().find(kAssistant) != std::string::npos;
}

// The style of a non-empty list of messages; null if it is not one.
const Style* style_of(const Json& list) {
  if (!list.is_array() || list.empty()) return nullptr;
  for (const Style& style : kStyles) {
    if (std::all_of(list.begin(), list.end(),
                    [&](const Json& message) { return is_text(value_of(message, style.role)); }))
      return &style;
  }
  return nullptr;
}

bool is_of(const Json& message, const Style& style, std::initializer_list<std::string_view> speakers) {
  const Json& speaker = *value_of(message, style.role);
  return std::any_of(speakers.begin(), speakers.end(), [&](std::string_view each) { return speaker == each; });
}
bool is_of_user(const Json& message, const Style& style) { return is_of(message, style, {"user", "human"}); }
bool is_of_assistant(const Json& message, const Style& style) { return is_of(message, style, {"assistant", "gpt"}); }
bool begins_conversation(const Json& message, const Style& style) {
  return is_of_user(message, style) || is_of(message, style, {"system", "developer"});
}

// A list of messages next to the answers, if there is one, and its column.
struct Context {
  std::string column;
  const Json* messages = nullptr;
  const Style* style = nullptr;
};
Context context_of(const Json& sample) {
  for (const char* const column : {"prompt", "messages", "conversations", "conversation"}) {
    const Json* const value = value_of(sample, column);
    const Style* const style = value == nullptr ? nullptr : style_of(*value);
    if (style != nullptr) return {column, value, style};
  }
  return {};
}

// The only column that holds a question as text; empty if there are several or none.
std::optional<Question> question_of(const Json& sample) {
  std::vector<Question> found;
  for (const Question& each : kQuestions) {
    if (is_text(value_of(sample, each.column))) found.push_back(each);
  }
  if (found.empty() && is_text(value_of(sample, kInput.column))) found.push_back(kInput);
  return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

// Alpaca's earlier turns: pairs of a question and its answer.
enum class History { none, pairs, other };
History history_of(const Json& sample) {
  const Json* const history = value_of(sample, "history");
  if (history == nullptr) return History::none;
  const auto is_pair = [](const Json& turn) {
    return turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
  };
  return history->is_array() && std::all_of(history->begin(), history->end(), is_pair) ? History::pairs
                                                                                       : History::other;
}

// The existing list columns that would be taken for the conversation instead of `kept`.
std::vector<std::string> other_lists(const Json& sample, std::string_view kept) {
  std::vector<std::string> others;
  for (const char* const column : {"prompt", "messages", "conversations", "conversation"}) {
    const Json* const value = value_of(sample, column);
    if (column != kept && value != nullptr && value->is_array()) others.emplace_back(column);
  }
  return others;
}

// The earlier turns, then the question as a user's message with its additional input.
std::string question_filter(const Json& sample, const Question& question, const Style& style) {
  std::string text = fmt::format(".{}", question.column);
  if (is_text(value_of(sample, "input")) && std::string_view(question.column) != kInput.column)
    text = fmt::format("([.{}, .input] | map(strings | select(. != \"\")) | join(\"\\n\"))", question.column);
  std::string turns;
  if (history_of(sample) == History::pairs)
    turns = fmt::format("[(.history // [])[] | {{{0}: \"{2}\", {1}: .[0]}}, {{{0}: \"{3}\", {1}: .[1]}}] + ",
                        style.role, style.content, style.user, style.assistant);
  return fmt::format("{}[{{{}: \"{}\", {}: {}}}]", turns, style.role, style.user, style.content, text);
}

// For answers that are messages: one, or a list of them.
std::optional<Better> of_messages(const Json& sample, const std::string& chosen) {
  const Json& answer = sample[chosen];
  const bool list = answer.is_array();
  const Json messages = list ? answer : Json::array({answer});
  const Style* const style = style_of(messages);
  if (style == nullptr) return std::nullopt;
  const bool begins = list && begins_conversation(messages.front(), *style);
  const bool answers = is_of_assistant(messages.front(), *style);
  const std::string tail = list ? "." + chosen : fmt::format("[.{}]", chosen);
  Better better{.filter = "", .gone = other_lists(sample, style->column)};
  const Context context = context_of(sample);
  if (context.messages != nullptr && context.style != style) return std::nullopt;
  const Json before = context.messages == nullptr ? Json::array() : *context.messages;
  const bool repeats = before.size() < messages.size() && std::equal(before.begin(), before.end(), messages.begin());
  if (context.column == "prompt" ? repeats : begins) {
    better.filter = fmt::format(".{} = {}", style->column, tail);
    const Json* const prompt = value_of(sample, "prompt");
    const auto repeated = [&](const Json& message) {
      const Json* const content = value_of(message, style->content);
      return content != nullptr && *content == *prompt;
    };
    if (is_text(prompt) && std::any_of(messages.begin(), messages.end(), repeated)) better.gone.emplace_back("prompt");
    return better;
  }
  if (!before.empty()) {
    // With two questions or two answers in a row, the second list does not continue the first.
    const bool goes_on = begins ? is_of_user(messages.front(), *style) && !is_of_user(before.back(), *style)
                                : !(answers && is_of_assistant(before.back(), *style));
    if (!goes_on) return std::nullopt;
    better.filter = fmt::format(".{} = .{} + {}", style->column, context.column, tail);
    return better;
  }
  const std::optional<Question> question = question_of(sample);
  if (!question || !answers || history_of(sample) == History::other) return std::nullopt;
  better.filter = fmt::format(".{} = {} + {}", style->column, question_filter(sample, *question, *style), tail);
  for (const char* const column : {question->column, "input", "history"}) {
    const bool known = std::find(better.gone.begin(), better.gone.end(), column) != better.gone.end();
    if (!known && sample.contains(column)) better.gone.emplace_back(column);
  }
  return better;
}

std::optional<Better> of_text(const Json& sample, const std::string& chosen) {
  const Json* const answer = &sample[chosen];
  const bool whole = is_dialogue(answer);
  if (whole || is_dialogue(value_of(sample, "prompt"))) {
    Better better{.filter = fmt::format(".messages = [{} | split(\"\\n\\nHuman:\")[1:][] | split(\"\\n\\nAssistant:\") "
                                        "| map(ltrimstr(\" \")) | {{role: \"user\", content: .[0]}}, (.[1:][] | "
                                        "{{role: \"assistant\", content: .}})]",
                                        whole ? "." + chosen : fmt::format("(.prompt + .{})", chosen)),
                  .gone = other_lists(sample, "messages")};
    if (is_dialogue(value_of(sample, "prompt"))) better.gone.emplace_back("prompt");
    return better;
  }
  if (const Context context = context_of(sample); context.messages != nullptr) {
    const Style& style = *context.style;
    if (is_of_assistant(context.messages->back(), style)) return std::nullopt;
    return Better{.filter = fmt::format(".{} = .{} + [{{{}: \"{}\", {}: .{}}}]", style.column, context.column,
                                        style.role, style.assistant, style.content, chosen),
                  .gone = other_lists(sample, style.column)};
  }
  const std::optional<Question> question = question_of(sample);
  if (!question || history_of(sample) == History::other) return std::nullopt;
  const std::string& asked = sample[question->column].get_ref<const std::string&>();
  if (!asked.empty() && answer->get_ref<const std::string&>().starts_with(asked)) return std::nullopt;
  Better better{.filter = "", .gone = other_lists(sample, "")};
  if (history_of(sample) == History::pairs && std::string_view(question->column) != "instruction") {
    better.filter = fmt::format(".instruction = .{} | .output = .{}", question->column, chosen);  // reads a history
    better.gone.emplace_back(question->column);
  } else {
    better.filter = fmt::format(".{} = .{}", question->answer, chosen);
  }
  return better;
}

std::string paired_sentence(const Json& sample, const std::string& chosen, const std::string& rejected) {
  const std::string begin =
      "it has a chosen and a rejected answer, but preference training (DPO etc.) is not supported; to train only on "
      "the chosen answers";
  std::optional<Better> better = sample[chosen].is_string() ? of_text(sample, chosen) : of_messages(sample, chosen);
  if (!better)
    return begin +
           ", make each sample the whole conversation: {\"messages\": [{\"role\": \"user\", \"content\": QUESTION}, "
           "{\"role\": \"assistant\", \"content\": ANSWER}]}, or {\"prompt\": QUESTION, \"completion\": ANSWER}";
  better->gone.push_back(chosen);
  better->gone.push_back(rejected);
  return fmt::format(
      "{}: jq -c 'if type == \"array\" then .[] else . end | if .{} then {} | del(.{}) else . end' FILE > better.jsonl",
      begin, chosen, better->filter, fmt::join(better->gone, ", ."));
}

// True, false, 1 or 0.
bool is_judgement(const Json* value) {
  if (value == nullptr) return false;
  return value->is_boolean() || (value->is_number() && (*value == 0 || *value == 1));
}

}  // namespace

std::string preference_sentence(const nlohmann::ordered_json& sample) {
  for (const auto& [chosen, rejected] :
       {std::pair{"chosen", "rejected"}, std::pair{"chosen_messages", "rejected_messages"}}) {
    if (value_of(sample, chosen) != nullptr && value_of(sample, rejected) != nullptr)
      return paired_sentence(sample, chosen, rejected);
  }
  for (const std::string_view tag : {"kto_tag", "label"}) {
    // "label" has many other meanings unless the sample is of KTO's form.
    const bool label = tag == "label";
    if ((label && value_of(sample, "completion") == nullptr) || !is_judgement(value_of(sample, tag))) continue;
    return fmt::format(
        "\"{0}\" says whether its answer is good, but preference training (KTO etc.) is not supported; to train only "
        "on the good answers: jq -c 'if type == \"array\" then .[] else . end | select(.{0} != false and .{0} != 0) | "
        "del(.{0})' FILE > better.jsonl{1}",
        tag, label ? " (if it means something else, give the dataset's format)" : "");
  }
  return "";
}

}  // namespace megatrain
