#include "megatrain/serve/served_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/grammar/json_schema.h"
#include "megatrain/serve/api_error.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;
using ToolChoice = ApiRequest::ToolChoice;

bool is_strict(const Json& tool) { return tool.at("function").value("strict", Json()) == true; }

// No parameters are an empty list of them.
Json parameters_of(const Json& tool) {
  const Json parameters = tool.at("function").value("parameters", Json());
  if (parameters.is_object() && !parameters.empty()) return parameters;
  return {{"type", "object"}, {"properties", Json::object()}};
}

}  // namespace

ServedText::ServedText(const ModelText& text, int64_t vocabulary) : text_(text), vocabulary_(vocabulary) {
  const Tokenizer& tokenizer = text.tokenizer;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    longest_token_ = std::max(longest_token_, tokenizer.token_of(id).size());
    if (tokenizer.is_special(id)) special_tokens_.push_back(tokenizer.token_of(id));
  }
  if (!text.chat_template) return;
  form_ = ToolForm::learn(*text.chat_template);
  special_calls_ = form_.kind == ToolForm::Kind::channels;
  for (const std::string& part : {form_.opening, form_.separator, form_.closing, form_.before_arguments, form_.name_end,
                                  form_.key_begin, form_.key_end, form_.value_end})
    for (const int32_t id : tokenizer.encode(part, false)) special_calls_ |= tokenizer.is_special(id);
}

std::string ServedText::without_special_tokens(std::string text) const {
  for (const std::string& token : special_tokens_) {
    for (size_t at = text.find(token); at != std::string::npos; at = text.find(token, at)) text.erase(at, token.size());
  }
  return text;
}

std::shared_ptr<TokenRules> ServedText::known(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(known_, key, &Known::key);
  if (found == known_.end()) return nullptr;
  known_.splice(known_.begin(), known_, found);
  return found->rules;
}

std::shared_ptr<TokenRules> ServedText::rules(const std::string& key, bool with_special, Grammar grammar) {
  constexpr size_t kMostKnown = 8, kMostKeyBytes = 1 << 16;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const TokenTrie>& trie = tries_[with_special ? 1 : 0];
  if (!trie) trie = std::make_shared<const TokenTrie>(text_.tokenizer, vocabulary_, with_special);
  auto made = std::make_shared<TokenRules>(std::move(grammar), trie, text_.chat_end_ids);
  if (key.size() > kMostKeyBytes) return made;
  known_.push_front({.key = key, .rules = made});
  if (known_.size() > kMostKnown) known_.pop_back();
  return made;
}

Grammar ServedText::format_grammar(const ApiRequest& request) const {
  const Json schema = request.format == ApiRequest::Format::object ? Json{{"type", "object"}} : request.schema;
  if (form_.kind != ToolForm::Kind::channels) return schema_grammar(schema);
  return call_grammar({.calls = {{.before = "", .schema = schema, .after = ""}},
                       .opening = "<|channel|>final<|message|>",
                       .separator = "",
                       .closing = ""});
}

Grammar ServedText::tool_grammar(const ApiRequest& request) const {
  const bool required = request.tool_choice == ToolChoice::required;
  const char* const param = required ? "tool_choice" : "tools";
  const auto refuse_form = [&] {
    throw ApiError(400,
                   fmt::format("this model writes tool calls in a form that the server cannot force, so {} is not "
                               "supported; {}",
                               required ? "'tool_choice' other than \"auto\" and \"none\"" : "\"strict\": true",
                               required ? "use \"auto\"" : "leave it out"),
                   param, "unsupported_parameter");
  };
  CallGrammar calls{.opening = form_.opening, .separator = form_.separator, .closing = form_.closing};
  if (form_.kind == ToolForm::Kind::channels) calls = {};
  calls.several = request.parallel_tools && !calls.separator.empty();
  calls.optional = !required;
  std::string rest;  // of the opening, behind its mark
  if (calls.optional) {
    const std::string mark = form_.mark();
    if (mark.empty() || form_.kind == ToolForm::Kind::channels) refuse_form();
    rest = form_.opening.substr(form_.opening.find(mark) + mark.size());
    calls.opening = mark;
    if (!calls.separator.ends_with(rest)) calls.several = false;
    if (calls.several) calls.separator.resize(calls.separator.size() - rest.size());
  }
  for (const Json& tool : request.tools) {
    const auto& name = tool.at("function").at("name").get_ref<const std::string&>();
    if (!request.named_tool.empty() && name != request.named_tool) continue;
    const std::optional<ToolForm::Frame> frame = form_.frame(name);
    if (!frame) refuse_form();
    const bool by_schema = required || is_strict(tool);
    calls.calls.push_back({.before = rest + frame->before,
                           .schema = by_schema ? parameters_of(tool) : Json{{"type", "object"}},
                           .after = frame->after});
  }
  return call_grammar(calls);
}

std::shared_ptr<TokenConstraint> ServedText::constraint(const ApiRequest& request) {
  const bool formatted = request.format != ApiRequest::Format::text;
  const bool calls = !request.tools.is_null() &&
                     (request.tool_choice == ToolChoice::required ||
                      (request.tool_choice == ToolChoice::automatic && std::ranges::any_of(request.tools, is_strict)));
  if (!formatted && !calls) return nullptr;
  const char* const param = formatted ? "response_format" : "tools";
  const Json key = {formatted,
                    request.format == ApiRequest::Format::object,
                    formatted ? request.schema : request.tools,
                    request.tool_choice == ToolChoice::required,
                    request.named_tool,
                    request.parallel_tools};
  const std::string text = key.dump(-1, ' ', false, Json::error_handler_t::replace);
  try {
    std::shared_ptr<TokenRules> found = known(text);
    const bool with_special = special_calls_ && (calls || form_.kind == ToolForm::Kind::channels);
    if (!found) found = rules(text, with_special, formatted ? format_grammar(request) : tool_grammar(request));
    return std::make_shared<GrammarConstraint>(found);
  } catch (const ApiError&) {
    throw;
  } catch (const Error& error) {
    throw ApiError(400, fmt::format("the schema cannot be obeyed: {}", error.what()), param, "unsupported_schema");
  }
}

}  // namespace megatrain
