#include "megatrain/chat/tool_form.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/chat/tool_text.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kName = "probe_tool", kKeys[] = {"probe_key_a", "probe_key_b"},
                           kValues[] = {"probe_value_a", "probe_value_b"};
constexpr std::string_view kChannel = "<|channel|>", kMessage = "<|message|>";

std::string without_blank_before(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string_view::npos ? "" : std::string(text.substr(begin));
}

size_t shared_begin(std::string_view a, std::string_view b) {
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first -
      a.begin());
}

size_t shared_end(std::string_view a, std::string_view b) {
  size_t count = 0;
  while (count < a.size() && count < b.size() && a[a.size() - 1 - count] == b[b.size() - 1 - count]) ++count;
  return count;
}

// null if it is no object.
Json read_object(std::string_view text) {
  const Json json = Json::parse(std::string(text), nullptr, false);
  return json.is_object() ? json : Json();
}

Json probe_tools() {
  Json properties = Json::object();
  for (const std::string_view key : kKeys) properties[std::string(key)] = {{"type", "string"}};
  return Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", kName}, {"description", "x"}, {"parameters", {{"type", "object"}, {"properties", properties}}}}}}});
}

Json probe_arguments() {
  Json arguments = Json::object();
  for (size_t i = 0; i < 2; ++i) arguments[std::string(kKeys[i])] = kValues[i];
  return arguments;
}

// Learns from texts that one template writes.
class Learner {
 public:
  explicit Learner(const ChatTemplate& chat) : chat_(chat) {}

  ToolForm learn() {
    const std::optional<std::string> without = render(Json::array({user()}), true, false);
    const std::optional<std::string> with = render(Json::array({user()}), true, true);
    form_.shows_tools = with && without && *with != *without && with->find(kName) != std::string::npos;
    for (const bool as_text : {false, true}) {
      form_.arguments_as_text = as_text;
      if (learn_calls()) return form_;
    }
    form_.arguments_as_text = false;
    return form_;
  }

 private:
  static Json user() { return {{"role", "user"}, {"content", "x"}}; }
  Json calls(size_t count) const {
    Json list = Json::array();
    for (size_t i = 0; i < count; ++i) {
      const Json arguments = probe_arguments();
      list.push_back(
          {{"id", fmt::format("probe000{}", i)},
           {"type", "function"},
           {"function",
            {{"name", kName}, {"arguments", form_.arguments_as_text ? Json(arguments.dump()) : arguments}}}});
    }
    return {{"role", "assistant"}, {"content", ""}, {"tool_calls", list}};
  }
  std::optional<std::string> render(const Json& messages, bool prompt, bool tools) const {
    try {
      return chat_
          .render({.messages = messages, .tools = tools ? probe_tools() : Json(), .add_generation_prompt = prompt})
          .text;
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  // What the template writes for an answer, without what every answer begins and ends with.
  std::optional<std::string> turn(const Json& answer) const {
    const std::optional<std::string> all = render(Json::array({user(), answer}), false, true),
                                     prompt = render(Json::array({user()}), true, true),
                                     plain =
                                         render(Json::array({user(), {{"role", "assistant"}, {"content", "probe"}}}),
                                                false, true);
    if (!all || !prompt || !plain) return std::nullopt;
    const size_t begin = shared_begin(*all, *prompt);
    const size_t of_plain = plain->rfind("probe");
    const std::string_view end =
        of_plain == std::string::npos ? std::string_view() : std::string_view(*plain).substr(of_plain + 5);
    const size_t tail = std::min(shared_end(*all, end), all->size() - begin);
    return all->substr(begin, all->size() - begin - tail);
  }

  bool learn_calls() {
    const std::optional<std::string> one = turn(calls(1));
    if (!one || one->find(kName) == std::string::npos) return false;
    if (one->find(kChannel) != std::string::npos && one->find(kMessage) != std::string::npos) {
      form_.kind = ToolForm::Kind::channels;
      return true;
    }
    const size_t name = one->find(kName);
    if (!learn_object(*one, name) && !learn_named(*one, name) && !learn_fields(*one, name)) return false;
    learn_separator(turn(calls(2)));
    const size_t thought = form_.opening.rfind("</think>");  // the template's own, of an answer without reasoning
    if (thought != std::string::npos) form_.opening.erase(0, thought + 8);
    form_.opening = without_blank_before(form_.opening);
    if (form_.call_opening.empty()) {
      form_.call_closing.clear();
    } else if (form_.opening.ends_with(form_.call_opening)) {
      form_.opening = form_.call_opening;  // what else begins an answer with calls is not needed to find them
    }
    return true;
  }

  bool learn_object(const std::string& text, size_t name) {
    const size_t begin = text.rfind('{', name);
    const size_t end = begin == std::string::npos ? begin : json_end(text, begin);
    if (end == std::string::npos) return false;
    const Json object = read_object(std::string_view(text).substr(begin, end - begin));
    form_.name_key.clear(), form_.arguments_key.clear();
    for (const auto& [key, value] : object.items()) {
      if (value == kName) form_.name_key = key;
      if (value == probe_arguments()) form_.arguments_key = key;
    }
    if (form_.name_key.empty() || form_.arguments_key.empty()) return false;
    form_.kind = ToolForm::Kind::object;
    form_.opening = text.substr(0, begin);
    form_.closing = text.substr(end);
    return true;
  }

  bool learn_named(const std::string& text, size_t name) {
    const size_t key = text.find(kKeys[0], name);
    const size_t begin = key == std::string::npos ? key : text.rfind('{', key);
    if (begin == std::string::npos || begin < name + kName.size()) return false;
    const size_t end = json_end(text, begin);
    if (end == std::string::npos || read_object(std::string_view(text).substr(begin, end - begin)) != probe_arguments())
      return false;
    form_.kind = ToolForm::Kind::named;
    form_.opening = text.substr(0, name);
    form_.before_arguments = text.substr(name + kName.size(), begin - name - kName.size());
    form_.closing = text.substr(end);
    return !form_.before_arguments.empty();
  }

  bool learn_fields(const std::string& text, size_t name) {
    size_t at = name + kName.size();
    std::string between[4];  // before the first key, before its value, before the second key, before its value
    for (size_t i = 0; i < 4; ++i) {
      const std::string_view next = i % 2 == 0 ? kKeys[i / 2] : kValues[i / 2];
      const size_t found = text.find(next, at);
      if (found == std::string::npos) return false;
      between[i] = text.substr(at, found - at);
      at = found + next.size();
    }
    if (between[1] != between[3] || trimmed_text(between[1]).empty()) return false;
    std::string key_begin = between[0].substr(between[0].size() - shared_end(between[0], between[2]));
    if (const size_t tag = key_begin.rfind('<'); tag != std::string::npos) key_begin.erase(0, tag);
    form_.key_begin = trimmed_text(key_begin);
    form_.key_end = trimmed_text(between[1]);
    form_.name_end = trimmed_text(std::string_view(between[0]).substr(0, between[0].size() - key_begin.size()));
    form_.value_end = trimmed_text(std::string_view(between[2]).substr(0, between[2].size() - key_begin.size()));
    const size_t value_end = text.find(form_.value_end, at);
    if (form_.key_begin.empty() || form_.value_end.empty() || value_end == std::string::npos) return false;
    form_.kind = ToolForm::Kind::fields;
    form_.opening = text.substr(0, name);
    form_.closing = text.substr(value_end + form_.value_end.size());
    return true;
  }

  // What is between two calls, if the template writes two.
  void learn_separator(const std::optional<std::string>& two) {
    if (!two || !two->starts_with(form_.opening) || !two->ends_with(form_.closing)) return;
    ToolForm::Kind kind = form_.kind;
    const size_t second = two->rfind(kName);
    const size_t first = two->find(kName);
    if (first == second) return;
    size_t first_end = 0, second_begin = second;
    if (kind == ToolForm::Kind::fields) {
      first_end = two->find(form_.value_end, two->find(kValues[1], first));
      if (first_end == std::string::npos) return;
      first_end += form_.value_end.size();
    } else {
      const size_t begin = kind == ToolForm::Kind::object ? two->rfind('{', first) : two->find('{', first);
      first_end = json_end(*two, begin);
      if (kind == ToolForm::Kind::object) second_begin = two->rfind('{', second);
    }
    if (first_end == std::string::npos || second_begin < first_end) return;
    form_.separator = two->substr(first_end, second_begin - first_end);
    const std::string_view separator = form_.separator;
    form_.call_opening =
        without_blank_before(separator.substr(separator.size() - shared_end(separator, form_.opening)));
    form_.call_closing = trimmed_text(separator.substr(0, shared_begin(separator, form_.closing)));
  }

  const ChatTemplate& chat_;
  ToolForm form_;
};

}  // namespace

ToolForm ToolForm::learn(const ChatTemplate& chat) { return Learner(chat).learn(); }

std::string ToolForm::mark() const { return kind == Kind::none ? "" : trimmed_text(opening); }

std::optional<ToolForm::Frame> ToolForm::frame(const std::string& name) const {
  switch (kind) {
    case Kind::object:
      return Frame{fmt::format("{{{}: {}, {}: ", Json(name_key).dump(), Json(name).dump(), Json(arguments_key).dump()),
                   "}"};
    case Kind::named: return Frame{name + before_arguments, ""};
    case Kind::channels:
      return Frame{fmt::format("<|channel|>commentary to=functions.{} <|constrain|>json<|message|>", name), ""};
    default: return std::nullopt;
  }
}

}  // namespace megatrain
