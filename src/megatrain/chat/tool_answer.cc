// Reads tool calls back from answers (chat/tool_form.h).
#include <algorithm>

#include "megatrain/chat/tool_form.h"
#include "megatrain/chat/tool_text.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;

// A text read from its beginning.
class Reader {
 public:
  explicit Reader(std::string_view text) : left_(text) {}

  void blanks() { left_.remove_prefix(std::min(left_.find_first_not_of(" \t\r\n"), left_.size())); }
  bool take(std::string_view text) {
    if (text.empty() || !left_.starts_with(text)) return false;
    left_.remove_prefix(text.size());
    return true;
  }
  // The text up to `mark`, which is taken, too.
  std::optional<std::string_view> until(std::string_view mark) {
    const size_t at = mark.empty() ? std::string_view::npos : left_.find(mark);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view before = left_.substr(0, at);
    left_.remove_prefix(at + mark.size());
    return before;
  }
  // A JSON object.
  Json object() {
    const size_t end = left_.starts_with('{') ? json_end(left_, 0) : std::string_view::npos;
    if (end == std::string_view::npos) return {};
    Json json = Json::parse(std::string(left_.substr(0, end)), nullptr, false);
    if (!json.is_object()) return {};
    left_.remove_prefix(end);
    return json;
  }
  bool at_end() const { return left_.empty(); }
  std::string_view left() const { return left_; }

 private:
  std::string_view left_;
};

const Json* find_tool(const Json& tools, const std::string& name) {
  for (const Json& tool : tools)
    if (tool.at("function").at("name") == name) return &tool.at("function");
  return nullptr;
}

// An argument that a model wrote without JSON's quotes: a text if the tool says so, otherwise the JSON that it is.
Json value_of(const Json& function, const std::string& key, const std::string& text) {
  const Json parameters = function.value("parameters", Json());
  const Json properties = parameters.is_object() ? parameters.value("properties", Json()) : Json();
  const Json schema = properties.is_object() ? properties.value(key, Json()) : Json();
  if (schema.is_object() && schema.value("type", Json()) == "string") return text;
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json(text) : value;
}

std::optional<ToolCall> read_fields(const ToolForm& form, Reader& reader, const Json& tools, std::string_view end) {
  std::string name;
  if (!form.name_end.empty()) {
    const std::optional<std::string_view> found = reader.until(form.name_end);
    if (!found) return std::nullopt;
    name = trimmed_text(*found);
  } else {
    const size_t at = std::min(reader.left().find(form.key_begin), reader.left().find(end));
    if (at == std::string_view::npos) return std::nullopt;
    name = trimmed_text(reader.left().substr(0, at));
    reader.take(reader.left().substr(0, at));
  }
  const Json* function = find_tool(tools, name);
  if (!function) return std::nullopt;
  Json arguments = Json::object();
  for (reader.blanks(); reader.take(form.key_begin); reader.blanks()) {
    const std::optional<std::string_view> key = reader.until(form.key_end), value = reader.until(form.value_end);
    if (!key || !value) return std::nullopt;
    std::string_view text = *value;
    if (text.starts_with('\n')) text.remove_prefix(1);
    if (text.ends_with('\n')) text.remove_suffix(1);
    arguments[trimmed_text(*key)] = value_of(*function, trimmed_text(*key), std::string(text));
  }
  return ToolCall{.name = name, .arguments = arguments.dump()};
}

std::optional<ToolCall> read_call(const ToolForm& form, Reader& reader, const Json& tools, std::string_view end) {
  if (form.kind == ToolForm::Kind::fields) return read_fields(form, reader, tools, end);
  ToolCall call;
  Json arguments;
  if (form.kind == ToolForm::Kind::object) {
    const Json object = reader.object();
    if (!object.is_object() || !object.contains(form.arguments_key) || !object.value(form.name_key, Json()).is_string())
      return std::nullopt;
    call.name = object.at(form.name_key).get<std::string>();
    arguments = object.at(form.arguments_key);
    if (object.value("id", Json()).is_string()) call.id = object.at("id").get<std::string>();
  } else {
    const std::string before = trimmed_text(form.before_arguments);
    const std::optional<std::string_view> name =
        before.empty() ? reader.left().substr(0, std::min(reader.left().find('{'), reader.left().size()))
                       : reader.until(before);
    if (!name) return std::nullopt;
    if (before.empty()) reader.take(*name);
    call.name = trimmed_text(*name);
    reader.blanks();
    arguments = reader.object();
  }
  if (arguments.is_string()) arguments = Json::parse(arguments.get<std::string>(), nullptr, false);
  if (!arguments.is_object() || !find_tool(tools, call.name)) return std::nullopt;
  call.arguments = arguments.dump();
  return call;
}

// <|channel|>NAME to=functions.TOOL …<|message|>TEXT<|end|>, again and again. The first may begin in its middle.
ToolAnswer read_channels(std::string_view text, const Json& tools) {
  ToolAnswer answer;
  Reader reader(text);
  while (!reader.at_end()) {
    const std::optional<std::string_view> found = reader.until("<|message|>");
    if (!found) {
      if (answer.calls.empty() && answer.content.empty() && answer.reasoning.empty()) answer.content = reader.left();
      break;
    }
    const std::string header(*found);
    size_t end = reader.left().size();
    for (const std::string_view mark : {"<|end|>", "<|call|>", "<|return|>", "<|start|>"})
      end = std::min(end, reader.left().find(mark));
    const std::string_view body = reader.left().substr(0, end);
    reader = Reader(reader.left().substr(end));
    const size_t to = header.find("to=functions.");
    if (to != std::string::npos) {
      std::string name = header.substr(to + 13);
      name = name.substr(0, name.find_first_of(" \n\t<"));
      const Json arguments = Reader(trimmed_text(body)).object();
      if (arguments.is_object() && find_tool(tools, name)) {
        answer.calls.push_back({.name = name, .arguments = arguments.dump()});
        continue;
      }
    }
    (header.find("<|channel|>analysis") != std::string::npos ? answer.reasoning : answer.content) += body;
  }
  return answer;
}

}  // namespace

ToolAnswer ToolForm::read(std::string_view text, const Json& tools) const {
  if (kind == Kind::channels) return read_channels(text, tools);
  const ToolAnswer plain{.content = std::string(text)};
  const std::string begin = mark(), end = call_closing.empty() ? trimmed_text(closing) : call_closing;
  const size_t at = begin.empty() ? 0 : text.find(begin);
  if (kind == Kind::none || at == std::string_view::npos) return plain;
  ToolAnswer answer{.content = std::string(text.substr(0, at))};
  Reader reader(text.substr(at));
  reader.take(begin);
  for (;;) {
    reader.blanks();
    std::optional<ToolCall> call = read_call(*this, reader, tools, end);
    if (!call) return plain;
    answer.calls.push_back(std::move(*call));
    reader.blanks();
    if (!call_opening.empty()) {
      reader.take(end);
      reader.blanks();
      if (reader.at_end() || !reader.take(trimmed_text(call_opening))) break;
    } else if (separator.empty() || !reader.take(trimmed_text(separator))) {
      break;
    }
  }
  return answer;
}

}  // namespace megatrain
