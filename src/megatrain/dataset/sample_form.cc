#include "megatrain/dataset/sample_form.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/dataset/preferences.h"
#include "megatrain/dataset/sample_json.h"
#include "megatrain/io/file.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFunctionCall = "function_call";  // our own role: an assistant's calls, written as JSON

struct Pair {
  const char *prompt, *response;
  bool chat_only;
};
constexpr Pair kPairs[] = {
    {"prompt", "completion", false},   {"prompt", "response", true},        {"question", "answer", true},
    {"question", "response", true},    {"query", "response", true},         {"input", "output", true},
    {"instruction", "response", true}, {"instruction", "completion", true}, {"problem", "solution", true}};

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

std::string or_else(const std::string& name, const char* own) { return name.empty() ? own : name; }

bool has(const Json& object, const std::string& key) { return object.is_object() && object.contains(key); }

// The column with the list of messages: the configured one, or the first of the usual names that exists.
std::string list_column(const DatasetColumns& columns, const Json& first, const char* own) {
  if (!columns.messages.empty()) return columns.messages;
  for (const char* const name : {own, "messages", "conversations", "conversation"}) {
    if (has(first, name) && first[name].is_array()) return name;
  }
  return own;
}

DatasetForm detect(const DatasetColumns& columns, const Json& first) {
  const std::string list = list_column(columns, first, "messages");
  if (has(first, list) && first[list].is_array()) {
    const Json empty = Json::object();
    const Json& message = first[list].empty() ? empty : first[list].front();
    if (!columns.role.empty()) return columns.role == "from" ? DatasetForm::sharegpt : DatasetForm::messages;
    if (has(message, "role")) return DatasetForm::messages;
    if (has(message, "from")) return DatasetForm::sharegpt;
    return list == "conversations" ? DatasetForm::sharegpt : DatasetForm::messages;
  }
  if (!columns.messages.empty() || !first.is_object()) return DatasetForm::detect;
  if (has(first, or_else(columns.prompt, "instruction")) && has(first, or_else(columns.response, "output"))) {
    return DatasetForm::alpaca;
  }
  if (!columns.prompt.empty() && !columns.response.empty()) return DatasetForm::detect;
  for (const Pair& pair : kPairs) {
    if (has(first, or_else(columns.prompt, pair.prompt)) && has(first, or_else(columns.response, pair.response))) {
      return DatasetForm::prompt;
    }
  }
  return has(first, or_else(columns.text, "text")) ? DatasetForm::text : DatasetForm::detect;
}

[[noreturn]] void missing(const Json& object, const std::string& column, const DatasetColumns& names) {
  fail_input(
      fmt::format("it has no {}, but the keys {}; all samples of a dataset need the same format: add it, or name its "
                  "column with {}",
                  printable(column), keys_of(object), names.named_in));
}

// The object's column under the name that `names` has for it; throws if it is missing.
Json& column_of(Json& object, const DatasetColumns& names, std::string DatasetColumns::*name) {
  const std::string& column = names.*name;
  const auto found = object.find(column);
  if (found == object.end()) missing(object, column, names);
  return *found;
}

[[noreturn]] void wrong_kind(const std::string& what, const Json& value, const char* expected) {
  fail_input(fmt::format("{} is {}; expected {}", what, kind_of(value), expected));
}

std::string take_text(Json& value, const std::string& what) {
  if (!value.is_string()) wrong_kind(what, value, "text");
  return std::move(value.get_ref<std::string&>());
}

// Empty if the column is absent or null.
std::string take_optional_text(Json& object, const std::string& column) {
  const auto found = column.empty() ? object.end() : object.find(column);
  if (found == object.end() || found->is_null()) return "";
  return take_text(*found, printable(column));
}

Json message_of(const char* role, std::string content) { return {{"role", role}, {"content", std::move(content)}}; }

// Converts ShareGPT's calls, {"name", "arguments"} or a list of them, to a message's "tool_calls".
Json call_message(const std::string& text, const std::string& which) {
  Json calls;
  try {
    calls = parse_sample_json(text);
  } catch (const Error& error) {
    fail_input(fmt::format("{} is a function call and has to be JSON, but it is {}", which, error.what()));
  }
  if (calls.is_object()) calls = Json::array({std::move(calls)});
  const auto is_call = [](const Json& call) { return has(call, "name") && has(call, "arguments"); };
  if (!calls.is_array() || calls.empty() || !std::all_of(calls.begin(), calls.end(), is_call)) {
    fail_input(
        fmt::format("{} is a function call and has to be an object with \"name\" and \"arguments\", or a list "
                    "of them",
                    which));
  }
  Json message = message_of("assistant", "");
  message["tool_calls"] = Json::array();
  for (Json& call : calls) message["tool_calls"].push_back({{"type", "function"}, {"function", std::move(call)}});
  return message;
}

// Converts the parts of LLaMA-Factory's v1 form, {"type", "value"}. Text is joined; reasoning and tool calls get the
// keys that templates know. Its "loss_weight" becomes "weight".
void take_parts(Json& message, const std::string& which) {
  if (const auto weight = message.find("loss_weight"); weight != message.end() && !message.contains("weight")) {
    message["weight"] = std::move(*weight);
    message.erase("loss_weight");
  }
  const auto content = message.find("content");
  const auto is_part = [](const Json& part) { return has(part, "type") && has(part, "value"); };
  if (content == message.end() || !content->is_array() || content->empty() ||
      !std::all_of(content->begin(), content->end(), is_part))
    return;
  std::string text, reasoning;
  Json calls = Json::array();
  for (Json& part : *content) {
    const std::string type = part["type"].is_string() ? part["type"].get<std::string>() : "?";
    const std::string value = take_text(part["value"], fmt::format("the content of {}", which));
    if (type == "text") {
      text += value;
    } else if (type == "reasoning") {
      reasoning += value;
    } else if (type == "tool_call") {
      for (Json& call : call_message(value, which)["tool_calls"]) calls.push_back(std::move(call));
    } else {
      fail_input(
          fmt::format("the content of {} has a part of type {}; only text is supported", which, printable(type)));
    }
  }
  message["content"] = std::move(text);
  if (!reasoning.empty()) message["reasoning_content"] = std::move(reasoning);
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
}

void check_content(const Json& message, const std::string& which) {
  const bool calls = has(message, "tool_calls") && message["tool_calls"].is_array() && !message["tool_calls"].empty();
  if (!message.contains("content") || message["content"].is_null()) {
    if (calls || (has(message, "reasoning_content") && message["reasoning_content"].is_string())) return;
    fail_input(fmt::format("{} has no content", which));
  }
  const Json& content = message["content"];
  if (content.is_string()) return;
  if (!content.is_array()) wrong_kind("the content of " + which, content, "text");
  for (const Json& part : content) {
    if (has(part, "type") && part["type"] != "text") {
      fail_input(fmt::format("the content of {} has a part of type {}; only text is supported", which,
                             printable(part["type"].is_string() ? part["type"].get<std::string>() : "?")));
    }
    if (!has(part, "text") || !part["text"].is_string()) {
      fail_input(fmt::format("the content of {} is a list, whose parts have to be objects with \"text\"", which));
    }
  }
}

}  // namespace

std::string known_forms() {
  return "{\"messages\": [{\"role\", \"content\"}]}, {\"conversations\": [{\"from\", \"value\"}]}, {\"instruction\", "
         "\"output\"}, {\"prompt\", \"completion\"}, {\"question\", \"answer\"} or {\"text\"}";
}

bool carries_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return !is_blank(value.get_ref<const std::string&>());
  return value.is_structured() && std::any_of(value.begin(), value.end(), carries_text);
}

std::string keys_of(const nlohmann::ordered_json& object) {
  constexpr size_t kShown = 8;
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) {
    if (names.size() < kShown) names.push_back(printable(key));
  }
  if (names.empty()) return "none";
  const std::string shown = fmt::format("{}", fmt::join(names, ", "));
  return object.size() > kShown ? fmt::format("{}, ... ({} in all)", shown, object.size()) : shown;
}

std::optional<SampleForm> SampleForm::settle(DatasetForm form, const DatasetColumns& columns, const Json& first) {
  SampleForm settled;
  settled.detected_ = form == DatasetForm::detect;
  settled.form_ = form == DatasetForm::detect ? detect(columns, first) : form;
  DatasetColumns& names = settled.names_ = columns;
  switch (settled.form_) {
    case DatasetForm::detect: return std::nullopt;
    case DatasetForm::messages:
      names.messages = list_column(columns, first, "messages");
      names.role = or_else(columns.role, "role");
      names.content = or_else(columns.content, "content");
      break;
    case DatasetForm::sharegpt:
      names.messages = list_column(columns, first, "conversations");
      names.role = or_else(columns.role, "from");
      names.content = or_else(columns.content, "value");
      break;
    case DatasetForm::alpaca:
    case DatasetForm::alpaca_prompt:
      names.prompt = or_else(columns.prompt, "instruction");
      names.query = or_else(columns.query, !has(first, "input") && has(first, "context") ? "context" : "input");
      if (columns.query.empty() && names.query == "context") settled.found_.push_back(names.query);
      names.response = or_else(columns.response, "output");
      names.history = or_else(columns.history, "history");
      break;
    case DatasetForm::prompt: settled.settle_pair(columns, first); break;
    case DatasetForm::text: names.text = or_else(columns.text, "text"); break;
  }
  names.system =
      or_else(columns.system, !has(first, "system") && has(first, "system_prompt") ? "system_prompt" : "system");
  if (columns.system.empty() && names.system == "system_prompt") settled.found_.push_back(names.system);
  names.tools = or_else(columns.tools, "tools");
  settled.settle_roles();
  return settled;
}

// Uses the first pair of names that exists. If the two texts do not simply continue each other, additional input of the
// question may be in a column of its own, like Dolly's context.
void SampleForm::settle_pair(const DatasetColumns& columns, const Json& first) {
  const Pair* pair = &kPairs[0];
  for (const Pair& each : kPairs) {
    if (has(first, or_else(columns.prompt, each.prompt)) && has(first, or_else(columns.response, each.response))) {
      pair = &each;
      break;
    }
  }
  names_.prompt = or_else(columns.prompt, pair->prompt);
  names_.response = or_else(columns.response, pair->response);
  chat_only_ = pair->chat_only && (columns.prompt.empty() || columns.response.empty());
  if (!columns.query.empty() || !chat_only_) return;
  for (const char* const name : {"input", "context"}) {
    if (name == names_.prompt || name == names_.response || !has(first, name)) continue;
    names_.query = name;
    found_.push_back(name);
    return;
  }
}

std::vector<std::string> SampleForm::found_columns() const { return found_; }

bool SampleForm::reads(std::string_view column, bool has_template) const {
  if (column.empty() || column == kNoColumn) return false;
  if (form_ == DatasetForm::text) return column == names_.text;
  const bool list = form_ == DatasetForm::messages || form_ == DatasetForm::sharegpt;
  if (list ? column == names_.messages : column == names_.prompt || column == names_.response) return true;
  if (form_ == DatasetForm::alpaca_prompt) return column == names_.query;
  if (!has_template) return false;  // only a prompt and its completion
  return column == names_.system || column == names_.tools || (!list && column == names_.query) ||
         (form_ == DatasetForm::alpaca && column == names_.history);
}

bool SampleForm::leaves_system(std::string_view column, const Json& object) const {
  if (column != names_.system || !has(object, names_.system)) return false;
  const bool list = form_ == DatasetForm::messages || form_ == DatasetForm::sharegpt;
  const std::string& messages = list ? names_.messages : names_.prompt;
  if (!has(object, messages) || !object[messages].is_array() || object[messages].empty()) return false;
  const Json& first = object[messages].front();
  const std::string role = list ? names_.role : "role", content = list ? names_.content : "content";
  const auto is_system = [&](const RoleWord& each) { return each.role == "system" && first[role] == each.word; };
  if (!has(first, role) || std::none_of(roles_.begin(), roles_.end(), is_system)) return false;
  return !has(first, content) || first[content] != object[names_.system];
}

std::string SampleForm::misfit(const Json& object, bool has_template) const {
  for (const char* const key : {"images", "videos", "audios"}) {
    if (!has(object, key) || reads(key, has_template) || !carries_text(object[key])) continue;
    return fmt::format(
        "it has \"{}\", but only text is supported; remove such samples, or, if their text is enough, that column",
        key);
  }
  const bool chosen = reads("chosen", has_template) || reads("chosen_messages", has_template);
  return detected_ && !chosen ? preference_sentence(object) : "";
}

void SampleForm::settle_roles() {
  const bool sharegpt = form_ == DatasetForm::sharegpt;
  const auto add = [&](const std::string& tag, const char* role, std::initializer_list<const char*> own) {
    if (!tag.empty()) {
      roles_.push_back({tag, role});
      return;
    }
    for (const char* const word : own) roles_.push_back({word, role});
  };
  if (sharegpt) {
    add(names_.user_tag, "user", {"human", "user"});
    add(names_.assistant_tag, "assistant", {"gpt", "assistant", "chatgpt", "bing", "bard", "model", "bot"});
    add(names_.system_tag, "system", {"system"});
    add(names_.observation_tag, "tool", {"observation", "tool", "function_response", "tool_response"});
    add(names_.function_tag, kFunctionCall, {"function_call", "tool_call"});
    return;
  }
  add(names_.user_tag, "user", {"user"});
  add(names_.assistant_tag, "assistant", {"assistant"});
  add(names_.system_tag, "system", {"system"});
  add(names_.observation_tag, "tool", {"tool"});
  if (!names_.function_tag.empty()) add(names_.function_tag, kFunctionCall, {});
  for (const char* const word : {"developer", "function", "ipython"}) add("", word, {word});
}

Sample SampleForm::read(Json object, bool has_template) const {
  if (!object.is_object()) {
    fail_input(fmt::format("a sample is {}; expected an object: {}", kind_of(object), known_forms()));
  }
  if (const std::string what = misfit(object, has_template); !what.empty()) fail_input(what);
  if (form_ == DatasetForm::text) return read_document(object);
  if (form_ == DatasetForm::prompt) return read_prompt(object, has_template);
  if (form_ == DatasetForm::alpaca_prompt) return read_alpaca_prompt(object);
  if (!has_template) {
    fail_input(
        "it is a conversation, but the model has no chat template; add chat_template.jinja to the model's directory, "
        "or train on text");
  }
  return form_ == DatasetForm::alpaca ? read_alpaca(object) : read_messages(object);
}

Sample SampleForm::read_document(Json& object) const {
  Sample sample{.kind = Sample::Kind::document};
  sample.text = take_text(column_of(object, names_, &DatasetColumns::text), printable(names_.text));
  if (is_blank(sample.text)) fail_input(fmt::format("{} is empty", printable(names_.text)));
  return sample;
}

Json SampleForm::read_message(Json& message, size_t number) const {
  const std::string which = fmt::format("message {}", number);
  if (!message.is_object()) wrong_kind(which, message, "an object");
  if (!message.contains(names_.role)) missing(message, names_.role, names_);
  const Json& named = message[names_.role];
  if (!named.is_string()) wrong_kind(fmt::format("{} of {}", printable(names_.role), which), named, "text");
  const std::string& word = named.get_ref<const std::string&>();
  const auto role = std::find_if(roles_.begin(), roles_.end(), [&](const RoleWord& each) { return each.word == word; });
  if (role == roles_.end()) {
    std::vector<std::string> words;
    for (const RoleWord& each : roles_) words.push_back(each.word);
    fail_input(
        fmt::format("{} has the unknown role {}; expected one of {}", which, printable(word), fmt::join(words, ", ")));
  }
  Json out = Json::object();
  for (auto& [key, value] : message.items()) {
    if (key == names_.role) {
      out["role"] = role->role;
    } else {
      out[key == names_.content ? "content" : key] = std::move(value);
    }
  }
  take_parts(out, which);
  check_content(out, which);
  if (role->role == kFunctionCall) {
    return call_message(take_text(out["content"], "the content of " + which), which);
  }
  return out;
}

Json SampleForm::read_list(Json& list, const std::string& column) const {
  if (!list.is_array()) wrong_kind(printable(column), list, "a list of messages");
  if (list.empty()) fail_input(fmt::format("{} is empty: the conversation has no message", printable(column)));
  Json messages = Json::array();
  for (Json& message : list) messages.push_back(read_message(message, messages.size() + 1));
  return messages;
}

// Puts the system column's text first, unless the conversation has a system message already.
void SampleForm::add_system(Json& object, Json& messages) const {
  std::string system = take_optional_text(object, names_.system);
  if (is_blank(system) || (!messages.empty() && messages.front()["role"] == "system")) return;
  messages.insert(messages.begin(), message_of("system", std::move(system)));
}

// A list of schemas, possibly as JSON text. ShareGPT's bare {"name", "parameters"} are converted to OpenAI's form.
Json SampleForm::take_tools(Json& object) const {
  const auto found = object.find(names_.tools);
  if (found == object.end() || found->is_null()) return nullptr;
  const std::string column = printable(names_.tools);
  Json tools = std::move(*found);
  if (tools.is_string()) {
    const std::string text = tools.get<std::string>();
    if (is_blank(text)) return nullptr;
    try {
      tools = parse_sample_json(text);
    } catch (const Error& error) {
      fail_input(fmt::format("{} is text and has to be a JSON list, but it is {}", column, error.what()));
    }
  }
  if (!tools.is_array()) wrong_kind(column, tools, "a list of schemas");
  if (tools.empty()) return nullptr;
  for (Json& tool : tools) {
    if (!tool.is_object()) wrong_kind("a part of " + column, tool, "an object");
    if (form_ == DatasetForm::sharegpt && tool.contains("name") && !tool.contains("function")) {
      tool = Json{{"type", "function"}, {"function", std::move(tool)}};
    }
  }
  return tools;
}

Sample SampleForm::read_messages(Json& object) const {
  Sample sample;
  sample.messages = read_list(column_of(object, names_, &DatasetColumns::messages), names_.messages);
  add_system(object, sample.messages);
  sample.tools = take_tools(object);
  return sample;
}

// The prompt's text and, on a new line, its additional input.
std::string SampleForm::take_question(Json& prompt, Json& object) const {
  std::string question = take_text(prompt, printable(names_.prompt));
  const std::string query = take_optional_text(object, names_.query);
  if (!question.empty() && !query.empty()) question += '\n';
  return question + query;
}

Sample SampleForm::read_alpaca(Json& object) const {
  Sample sample{.messages = Json::array()};
  add_system(object, sample.messages);
  if (const auto history = object.find(names_.history); history != object.end() && !history->is_null()) {
    if (!history->is_array()) wrong_kind(printable(names_.history), *history, "a list of pairs");
    for (Json& turn : *history) {
      if (!turn.is_array() || turn.size() != 2) {
        fail_input(fmt::format("{} has a turn that is not a pair of texts", printable(names_.history)));
      }
      sample.messages.push_back(message_of("user", take_text(turn[0], "a question of the history")));
      sample.messages.push_back(message_of("assistant", take_text(turn[1], "an answer of the history")));
    }
  }
  sample.messages.push_back(
      message_of("user", take_question(column_of(object, names_, &DatasetColumns::prompt), object)));
  sample.messages.push_back(message_of(
      "assistant", take_text(column_of(object, names_, &DatasetColumns::response), printable(names_.response))));
  sample.tools = take_tools(object);
  return sample;
}

// The prompt that Stanford's Alpaca was trained with, and that Axolotl's type alpaca writes.
Sample SampleForm::read_alpaca_prompt(Json& object) const {
  const std::string task = take_text(column_of(object, names_, &DatasetColumns::prompt), printable(names_.prompt));
  const std::string input = take_optional_text(object, names_.query);
  Sample sample{.kind = Sample::Kind::continuation};
  sample.text = fmt::format(
      "Below is an instruction that describes a task{}. Write a response that appropriately completes the "
      "request.\n\n### Instruction:\n{}\n\n{}### Response:\n",
      input.empty() ? "" : ", paired with an input that provides further context", task,
      input.empty() ? "" : fmt::format("### Input:\n{}\n\n", input));
  sample.answer = sample.text.size();
  sample.text += take_text(column_of(object, names_, &DatasetColumns::response), printable(names_.response));
  if (sample.answer == sample.text.size()) fail_input(fmt::format("{} is empty", printable(names_.response)));
  return sample;
}

Sample SampleForm::read_prompt(Json& object, bool has_template) const {
  Json& prompt = column_of(object, names_, &DatasetColumns::prompt);
  Json& response = column_of(object, names_, &DatasetColumns::response);
  Sample sample{.messages = Json::array()};
  if (!has_template) {
    if (chat_only_ || !prompt.is_string() || !response.is_string()) {
      fail_input(
          "it is a conversation, but the model has no chat template; add chat_template.jinja to the model's directory, "
          "or give {\"prompt\", \"completion\"} as texts, where the completion continues the prompt");
    }
    sample.kind = Sample::Kind::continuation;
    sample.text = take_text(prompt, printable(names_.prompt));
    sample.answer = sample.text.size();
    sample.text += take_text(response, printable(names_.response));
    if (sample.answer == sample.text.size()) fail_input(fmt::format("{} is empty", printable(names_.response)));
    return sample;
  }
  const SampleForm messages = *settle(DatasetForm::messages, {}, Json::object());
  const auto add = [&](Json& value, const std::string& column, const char* role) {
    if (value.is_array()) {
      for (Json& message : messages.read_list(value, column)) sample.messages.push_back(std::move(message));
    } else {
      sample.messages.push_back(message_of(role, take_text(value, printable(column))));
    }
  };
  if (prompt.is_string()) {
    sample.messages.push_back(message_of("user", take_question(prompt, object)));
  } else {
    if (!is_blank(take_optional_text(object, names_.query))) {
      fail_input(fmt::format("{} is a list of messages, so {} cannot be added; put its text into a message",
                             printable(names_.prompt), printable(names_.query)));
    }
    add(prompt, names_.prompt, "user");
  }
  add(response, names_.response, "assistant");
  add_system(object, sample.messages);
  sample.tools = take_tools(object);
  return sample;
}

}  // namespace megatrain
