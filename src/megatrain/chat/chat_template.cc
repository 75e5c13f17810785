#include "megatrain/chat/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/chat/builtin_templates.h"
#include "megatrain/chat/chat_mask.h"
#include "megatrain/chat/jinja/jinja.h"
#include "megatrain/chat/jinja/json.h"
#include "megatrain/io/file.h"
#include "megatrain/io/replace.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxJsonBytes = 256 * kMiB;

constexpr std::string_view kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                             "pad_token", "cls_token", "mask_token"};

Json read_json(const std::filesystem::path& path) {
  const auto text = read_text_if_there(path.string(), kMaxJsonBytes);
  if (!text) return Json::object();
  try {
    Json json = Json::parse(*text);
    if (!json.is_object()) fail_input(fmt::format("{} has to be a JSON object.", path.string()));
    return json;
  } catch (const Json::exception& error) {
    fail_input(fmt::format("{} is not valid JSON: {}; correct it or download it again.", path.string(), error.what()));
  }
}

// A token is written as a string or as {"content": "..."}.
std::optional<std::string> token_text(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string()) {
    return token["content"].get<std::string>();
  }
  return std::nullopt;
}

void add_once(std::vector<std::string>& tokens, const std::string& token) {
  if (!token.empty() && std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
}

// Finds tokens written in the source as <|...|>, or between DeepSeek's full-width bars.
void add_bar_tokens(std::vector<std::string>& tokens, std::string_view source) {
  constexpr size_t kLongest = 64;
  for (const auto& [open, close] : {std::pair<std::string_view, std::string_view>{"<|", "|>"}, {"<｜", "｜>"}}) {
    for (size_t begin = source.find(open); begin != std::string_view::npos; begin = source.find(open, begin + 1)) {
      const size_t end = source.find(close, begin + open.size());
      if (end == std::string_view::npos) break;
      const std::string_view name = source.substr(begin + open.size(), end - begin - open.size());
      if (name.empty() || name.size() > kLongest) continue;
      if (name.find_first_of(" \t\r\n<>'\"{}%+~") != std::string_view::npos) continue;
      add_once(tokens, std::string(source.substr(begin, end + close.size() - begin)));
    }
  }
}

bool is_given(const Json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && !found->is_null();
}

// Reasoning has several names, and a template may read any of them. The keys are in the order in which transformers
// passes them, which leaves out "reasoning".
Json with_reasoning(const Json& message) {
  const auto* const found = std::find_if(std::begin(kReasoningKeys), std::end(kReasoningKeys),
                                         [&](const char* key) { return is_given(message, key); });
  if (found == std::end(kReasoningKeys)) return message;
  const Json reasoning = message[*found];
  Json out = Json::object();
  auto& members = out.get_ref<Json::object_t&>();  // operator[] would compare each key with all before it
  members.emplace_back("thinking", is_given(message, "thinking") ? message["thinking"] : reasoning);
  for (const auto& [name, value] : message.items()) {
    if (name != "thinking") members.emplace_back(name, value);
  }
  out["reasoning_content"] = reasoning;
  if (!is_given(message, "reasoning")) out["reasoning"] = reasoning;
  return out;
}

jinja::Value message_value(const Json& json, int32_t index) {
  std::vector<std::pair<jinja::Value, jinja::Value>> entries;
  for (const auto& [key, item] : json.items()) {
    jinja::Value value = jinja::from_json(item, index);
    if (key == "role" && item.is_string()) {
      value = jinja::Value::of(jinja::Text(item.get<std::string>(), {.message = index, .role = true}));
    }
    entries.emplace_back(jinja::Value::of(key), std::move(value));
  }
  jinja::Value value = jinja::Value::dict(std::move(entries), index);
  value.source = index;
  return value;
}

std::vector<jinja::Value> message_values(const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    fail_input("Cannot apply chat template to an empty conversation: \"messages\" has to be a list of at least one.");
  }
  std::vector<jinja::Value> values;
  for (const Json& message : messages) {
    const std::string where = fmt::format("message {}", values.size() + 1);
    if (!message.is_object()) fail_input(where + " is not an object with \"role\" and \"content\".");
    try {
      values.push_back(message_value(with_reasoning(message), static_cast<int32_t>(values.size())));
    } catch (const jinja::Raise& raised) {
      fail_input(fmt::format("{}: {}.", where, raised.what()));
    }
  }
  return values;
}

std::tm local_now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm now = {};
  localtime_r(&seconds, &now);
  return now;
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& source, const std::string& name,
                           std::vector<std::pair<std::string, std::string>> special_tokens)
    : named_tokens_(std::move(special_tokens)), directory_(name) {
  add_source("default", source, name);
  for (const auto& [key, token] : named_tokens_) {
    special_tokens_.add(token);
    if (key == "eos_token") end_tokens_.add(token);
  }
}

void ChatTemplate::add_source(const std::string& name, const std::string& source, const std::string& where) {
  templates_.push_back({name, source, std::make_shared<const jinja::Template>(source, where)});
  add_bar_tokens(source_tokens_, source);
}

std::vector<std::pair<std::string, std::string>> ChatTemplate::sources() const {
  std::vector<std::pair<std::string, std::string>> sources;
  for (const Named& named : templates_) sources.emplace_back(named.name, named.text);
  return sources;
}

std::vector<std::string> ChatTemplate::written_tokens() const {
  std::vector<std::string> tokens = special_tokens_.all();
  for (const std::string& token : source_tokens_) add_once(tokens, token);
  return tokens;
}

void ChatTemplate::add_special_tokens(const std::vector<std::string>& tokens) {
  for (const std::string& token : tokens) special_tokens_.add(token);
}

void ChatTemplate::add_end_tokens(const std::vector<std::string>& tokens) {
  for (const std::string& token : tokens) end_tokens_.add(token);
}

void ChatTemplate::read_config(const Json& config, const std::string& path) {
  for (const std::string_view name : kNamedTokens) {
    const std::string key(name);
    const bool known =
        std::any_of(named_tokens_.begin(), named_tokens_.end(), [&](const auto& token) { return token.first == key; });
    if (known || !config.contains(key) || config[key].is_null()) continue;
    const auto token = token_text(config[key]);
    if (!token) fail_input(fmt::format("{}: \"{}\" has to be a string or an object with \"content\".", path, key));
    named_tokens_.emplace_back(key, *token);
    if (key == "eos_token") end_tokens_.add(*token);
    special_tokens_.add(*token);
  }
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    if (!config.contains(key)) continue;
    for (const Json& item : config[key]) {
      if (const auto token = token_text(item)) special_tokens_.add(*token);
    }
  }
  if (config.contains("added_tokens_decoder")) {
    for (const Json& item : config["added_tokens_decoder"]) {
      const auto token = token_text(item);
      if (token && item.is_object() && item.contains("special") && item["special"] == true) special_tokens_.add(*token);
    }
  }
}

ChatTemplate ChatTemplate::load(const std::string& model_directory) {
  std::optional<ChatTemplate> found = find(model_directory);
  if (!found) {
    fail_input(
        fmt::format("{} has no chat template: neither chat_template.jinja nor \"chat_template\" in "
                    "tokenizer_config.json; add one of them.",
                    model_directory));
  }
  return std::move(*found);
}

std::optional<ChatTemplate> ChatTemplate::find(const std::string& model_directory, const std::string& chosen) {
  ChatTemplate chat;
  chat.directory_ = model_directory;
  const std::filesystem::path directory(model_directory);
  const std::filesystem::path config_path = directory / "tokenizer_config.json";
  const Json config = read_json(config_path);
  // The map overrides the configuration if that has no added_tokens_decoder; otherwise the map is ignored.
  if (!config.contains("added_tokens_decoder") || config["added_tokens_decoder"].is_null()) {
    const std::filesystem::path map_path = directory / "special_tokens_map.json";
    chat.read_config(read_json(map_path), map_path.string());
  }
  chat.read_config(config, config_path.string());
  const auto add = [&](const std::string& name, const std::string& source, const std::string& where) {
    chat.add_source(name, source, where);
  };
  if (!chosen.empty()) {
    add("default", read_template(chosen), chosen);
    return chat;
  }
  const std::filesystem::path file = directory / "chat_template.jinja";
  if (const auto source = read_text_if_there(file.string(), kMaxTemplateBytes)) add("default", *source, file.string());
  std::error_code error;
  std::vector<std::filesystem::path> more;
  for (const auto& entry : std::filesystem::directory_iterator(directory / "additional_chat_templates", error)) {
    if (entry.path().extension() == ".jinja") more.push_back(entry.path());
  }
  std::sort(more.begin(), more.end());
  for (const auto& path : more)
    add(path.stem().string(), read_text_if_there(path.string(), kMaxTemplateBytes).value_or(""), path.string());
  if (chat.templates_.empty() && config.contains("chat_template") && !config["chat_template"].is_null()) {
    const Json& held = config["chat_template"];
    const std::string where = config_path.string() + " (chat_template)";
    if (held.is_string()) {
      add("default", held.get<std::string>(), where);
    } else if (held.is_array()) {
      for (const Json& item : held) {
        if (!item.is_object() || !item.contains("name") || !item["name"].is_string() || !item.contains("template") ||
            !item["template"].is_string()) {
          fail_input(where + " has to be a string or a list of objects with \"name\" and \"template\".");
        }
        add(item["name"].get<std::string>(), item["template"].get<std::string>(), where);
      }
    } else {
      fail_input(where + " has to be a string or a list of objects with \"name\" and \"template\".");
    }
  }
  if (chat.templates_.empty()) return std::nullopt;
  return chat;
}

const jinja::Template& ChatTemplate::choose(const ChatInputs& inputs) const {
  const auto find = [&](std::string_view name) {
    return std::find_if(templates_.begin(), templates_.end(), [&](const Named& named) { return named.name == name; });
  };
  if (!inputs.tools.is_null() && find("tool_use") != templates_.end()) return *find("tool_use")->source;
  if (find("default") == templates_.end()) {
    fail_input(fmt::format(
        "{} has several chat templates, but none named \"default\"; rename one of them to \"default\".", directory_));
  }
  return *find("default")->source;
}

RenderedChat ChatTemplate::render(const ChatInputs& inputs) const {
  const jinja::Template& source = choose(inputs);
  const std::vector<jinja::Value> messages = message_values(inputs.messages);
  jinja::Inputs base;
  base.now = inputs.now ? *inputs.now : local_now();
  try {
    for (const auto& [name, json] :
         {std::pair<const char*, const Json&>{"tools", inputs.tools}, {"documents", inputs.documents}}) {
      if (!json.is_null() && !json.is_array()) fail_input(fmt::format("\"{}\" has to be a list.", name));
      base.variables.emplace_back(name, jinja::from_json(json));
    }
    if (!inputs.variables.is_null()) {
      for (const auto& [name, json] : inputs.variables.items())
        base.variables.emplace_back(name, jinja::from_json(json));
    }
  } catch (const jinja::Raise& raised) {
    fail_input(fmt::format("the variables of a chat template: {}.", raised.what()));
  }
  for (const auto& [name, token] : named_tokens_) base.variables.emplace_back(name, jinja::Value::of(token));

  const auto render_with = [&](std::vector<jinja::Value> values, bool generation_prompt) {
    jinja::Inputs all = base;
    all.variables.emplace_back("messages", jinja::Value::list(std::move(values)));
    all.variables.emplace_back("add_generation_prompt", jinja::Value::of(generation_prompt));
    return source.render(std::move(all));
  };
  const jinja::Text text = render_with(messages, inputs.add_generation_prompt);
  RenderedChat chat{.text = text.bytes(), .renderings = 1};
  std::vector<std::string> roles;
  for (const Json& message : inputs.messages) {
    const auto role = message.find("role");
    roles.push_back(role != message.end() && role->is_string() ? role->get<std::string>() : "");
  }
  const auto render = [&](const MaskInputs::Variant& variant) -> std::optional<jinja::Text> {
    std::vector<jinja::Value> values(messages.begin(), messages.begin() + static_cast<ptrdiff_t>(variant.count));
    for (size_t i = 0; variant.plain && i < values.size(); ++i) {
      if (roles[i] != "assistant" || variant.plain_message.value_or(i) != i) continue;
      values[i] = message_value({{"role", "assistant"}, {"content", "x"}}, static_cast<int32_t>(i));
    }
    ++chat.renderings;
    try {
      return render_with(std::move(values), variant.generation_prompt);
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  ChatMask mask = source.has_generation_tags() ? find_generated(text, special_tokens_)
                                               : find_trained({.text = text,
                                                               .roles = roles,
                                                               .special_tokens = special_tokens_,
                                                               .end_tokens = end_tokens_,
                                                               .render = render});
  chat.said.resize(roles.size());
  size_t begin = 0;
  for (const jinja::Text::Run& run : text.runs()) {
    const int32_t message = run.origin.message;
    if (message >= 0 && static_cast<size_t>(message) < roles.size() && !run.origin.role)
      chat.said[static_cast<size_t>(message)].append(text.bytes(), begin, run.end - begin);
    begin = run.end;
  }
  chat.trained = std::move(mask.trained);
  chat.ends = mask.ends;
  chat.sure = mask.sure;
  return chat;
}

}  // namespace megatrain
