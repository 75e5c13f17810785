#include "megatrain/chat/compare_templates.h"

#include <algorithm>
#include <ctime>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/io/json.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

Json turn(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

// Noon of 26 July 2024, so that the comparison is the same on every day.
std::tm comparison_date() {
  std::tm date = {};
  date.tm_year = 124;
  date.tm_mon = 6;
  date.tm_mday = 26;
  date.tm_hour = 12;
  date.tm_wday = 5;
  date.tm_yday = 207;
  return date;
}

ChatInputs conversation(std::vector<Json> turns, bool prompt = false) {
  return {.messages = Json(std::move(turns)), .add_generation_prompt = prompt, .now = comparison_date()};
}

// Empty if the template refuses the conversation.
std::optional<std::string> text_of(const ChatTemplate& chat, const ChatInputs& inputs) {
  try {
    return chat.render(inputs).text;
  } catch (const Error&) {
    return std::nullopt;
  }
}

ChatInputs with_tools() {
  const Json parameters = {{"type", "object"}, {"properties", {{"zone", {{"type", "string"}}}}}};
  const Json function = {{"name", "clock"}, {"description", "The time."}, {"parameters", parameters}};
  const Json call = {
      {"id", "abcdef123"}, {"type", "function"}, {"function", {{"name", "clock"}, {"arguments", {{"zone", "UTC"}}}}}};
  ChatInputs inputs = conversation({turn("user", "Time?"),
                                    {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}},
                                    {{"role", "tool"}, {"content", "12:00"}, {"tool_call_id", "abcdef123"}},
                                    turn("assistant", "Noon.")});
  inputs.tools = Json::array({{{"type", "function"}, {"function", function}}});
  return inputs;
}

// Whether the template lists tools. Some ignore them.
bool writes_tools(const ChatTemplate& chat) {
  const auto text = text_of(chat, with_tools());
  return text && text->find("The time.") != std::string::npos && text->find("zone") != std::string::npos;
}

// The text around the first byte that differs, in quotes and escaped.
std::string shown(const std::optional<std::string>& text, size_t differs) {
  constexpr size_t kBefore = 80, kMost = 320;
  if (!text) return "refuses it";
  size_t begin = differs > kMost - kBefore ? differs - kBefore : 0;
  const auto is_inside = [&](size_t at) { return at < text->size() && ((*text)[at] & 0xC0) == 0x80; };
  while (begin > 0 && is_inside(begin)) --begin;
  size_t end = std::min(text->size(), begin + kMost);
  while (is_inside(end)) ++end;
  return fmt::format("{}{}{}", begin > 0 ? "..." : "",
                     Json(text->substr(begin, end - begin)).dump(-1, ' ', false, Json::error_handler_t::replace),
                     end < text->size() ? "..." : "");
}

}  // namespace

std::optional<std::pair<std::string, std::string>> find_difference(const ChatTemplate& one, const ChatTemplate& other) {
  const Json system = turn("system", "Be brief."), hi = turn("user", "Hi"), hello = turn("assistant", "Hello."),
             more = turn("user", "How are you?"), well = turn("assistant", "Well.");
  std::vector<ChatInputs> probes = {conversation({hi, hello}),
                                    conversation({hi}, true),
                                    conversation({hi, hello, more, well}),
                                    conversation({hi, hello, more}, true),
                                    conversation({system, hi, hello}),
                                    conversation({system, hi, hello, more, well})};
  if (writes_tools(one) && writes_tools(other)) probes.push_back(with_tools());
  for (const ChatInputs& probe : probes) {
    const auto left = text_of(one, probe), right = text_of(other, probe);
    if (left == right) continue;
    size_t differs = 0;
    if (left && right)
      differs = static_cast<size_t>(std::mismatch(left->begin(), left->end(), right->begin(), right->end()).first -
                                    left->begin());
    return std::pair(shown(left, differs), shown(right, differs));
  }
  return std::nullopt;
}

void check_template_tokens(const ChatTemplate& builtin, const std::string& name, const Tokenizer& tokenizer,
                           const std::string& key) {
  const RenderedChat chat =
      builtin.render(conversation({turn("system", "s"), turn("user", "a"), turn("assistant", "b")}));
  std::vector<std::string> marks = builtin.written_tokens(), missing, words;
  marks.insert(marks.end(), {"<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"});
  for (const std::string& mark : marks) {
    if (chat.text.find(mark) == std::string::npos) continue;
    const int32_t id = tokenizer.id_of(mark);
    if (id >= 0 && tokenizer.encode(mark, false) == std::vector<int32_t>{id}) continue;
    (mark.front() == '[' ? words : missing).push_back(mark);
  }
  if (!missing.empty())
    fail_input(
        fmt::format("{} is {}, a chat template that writes {}, which the tokenizer does not have as one token; choose "
                    "a template of plain text (alpaca or vicuna), leave {} out if the model has its own, or add the "
                    "tokens to the tokenizer and the model's embedding with transformers first",
                    key, name, fmt::join(missing, ", "), key));
  if (!chat.ends || chat.trained.empty())
    fail_input(
        fmt::format("{} is {}, a chat template that ends answers with the tokenizer's eos_token, and the model names "
                    "none; add \"eos_token\" to its tokenizer_config.json",
                    key, name));
  if (!words.empty())
    log_warn(fmt::format(
        "{} is {}, a chat template that writes {}, which the tokenizer splits into several tokens; training "
        "works, but choose the template of the model's family if it has been trained on conversations",
        key, name, fmt::join(words, " and ")));
}

}  // namespace megatrain
