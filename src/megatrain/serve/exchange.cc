#include "megatrain/serve/exchange.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/json_text.h"
#include "megatrain/serve/api_error.h"

namespace megatrain {

namespace {

double seconds_since(AnswerEngine::Clock::time_point begin) {
  return std::chrono::duration<double>(AnswerEngine::Clock::now() - begin).count();
}

const char* reason(Finish finish) { return finish == Finish::stop ? "stop" : "length"; }

// As some templates want it: nine letters and digits.
std::string call_id() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::string id;
  for (uint64_t number = random_number(); id.size() < 9; number /= kLetters.size())
    id += kLetters[number % kLetters.size()];
  return id;
}

nlohmann::ordered_json call_json(const ToolCall& call) {
  return {{"id", call.id.empty() ? call_id() : call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

}  // namespace

uint64_t random_number() {
  thread_local std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

ApiExchange::ApiExchange(Asked asked, const std::vector<Prompt>& prompts, ServeMetrics& metrics)
    : asked_(std::move(asked)),
      metrics_(metrics),
      id_(fmt::format("{}-{:016x}", asked_.chat ? "chatcmpl" : "cmpl", random_number())),
      open_(prompts.size() * static_cast<size_t>(asked_.request.n)) {
  const ApiRequest& request = asked_.request;
  const Tokenizer& tokenizer = asked_.text.text().tokenizer;
  const std::string mark = reads_calls() ? asked_.text.form().mark() : "";
  for (size_t i = 0; i < prompts.size(); ++i) {
    prompt_tokens_ += std::ssize(prompts[i].ids);
    for (int64_t n = 0; n < request.n; ++n) {
      Choice& choice = choices_.emplace_back(
          Choice{.answer = {},
                 .prompt = {},
                 .echoed = {},
                 .completion_tokens = CompletionTokens(tokenizer),
                 .before_calls = StopText(mark.empty() ? std::vector<std::string>() : std::vector{mark})});
      if (!request.echo) continue;
      choice.prompt = prompts[i].ids;
      const std::string* text = std::get_if<std::string>(&request.prompts[i]);
      choice.echoed = text ? *text : tokenizer.decode(prompts[i].ids, false);
    }
  }
  metrics_.add_prompt_tokens(prompt_tokens_);
}

// Whether the answer's text holds tool calls, or channels, that become fields of their own.
bool ApiExchange::reads_calls() const {
  const ApiRequest& request = asked_.request;
  if (!asked_.chat || asked_.text.form().kind == ToolForm::Kind::none) return false;
  if (asked_.text.form().kind == ToolForm::Kind::channels && request.format != ApiRequest::Format::text) return true;
  return !request.tools.is_null() && request.tool_choice != ApiRequest::ToolChoice::none;
}

ApiExchange::Json ApiExchange::head(const char* object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", asked_.model}};
}

ApiExchange::Json ApiExchange::usage() const {
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", completion_tokens_},
          {"total_tokens", prompt_tokens_ + completion_tokens_}};
}

void ApiExchange::send_chunk(Json choices, bool with_usage) const {
  Json chunk = head(asked_.chat ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = std::move(choices);
  if (asked_.request.include_usage) chunk["usage"] = with_usage ? usage() : Json(nullptr);
  asked_.reply.event(json_text(chunk));
}

// The likelihoods that were not sent yet.
ApiExchange::Json ApiExchange::likelihoods(Choice& choice) const {
  if (!asked_.request.logprobs) return nullptr;
  if (!asked_.chat) return choice.completion_tokens.take();
  return {{"content", std::exchange(choice.chat_tokens, Json::array())}, {"refusal", nullptr}};
}

// `delta` is a chat's, or a completion's text.
void ApiExchange::send_part(size_t index, Json delta, const Json& finish) {
  Json part = {{"index", index}};
  part[asked_.chat ? "delta" : "text"] = std::move(delta);
  part["logprobs"] = likelihoods(choices_[index]);
  part["finish_reason"] = finish;
  send_chunk(Json::array({std::move(part)}));
}

void ApiExchange::start() {
  if (std::exchange(started_, true)) return;
  const double waited_s = seconds_since(asked_.arrived);
  metrics_.add_queue_s(waited_s);
  headers_ = {{"X-Queue-Ms", fmt::format("{:.0f}", waited_s * 1000)}};
  if (!asked_.request.stream) return;
  asked_.reply.begin_events(headers_);
  for (size_t i = 0; asked_.chat && i < choices_.size(); ++i) {
    send_chunk(Json::array({{{"index", i},
                             {"delta", {{"role", "assistant"}, {"content", ""}}},
                             {"logprobs", nullptr},
                             {"finish_reason", nullptr}}}));
  }
}

void ApiExchange::add_prompt(size_t index, const std::vector<Likelihood>& tokens) {
  Choice& choice = choices_[index];
  const bool from_ids = std::holds_alternative<std::vector<int32_t>>(
      asked_.request.prompts[index / static_cast<size_t>(asked_.request.n)]);
  choice.completion_tokens.add_prompt(choice.prompt, tokens, from_ids);
}

// The part of new text that is content whatever follows it.
std::string ApiExchange::certain_content(Choice& choice, const std::string& more) const {
  if (!reads_calls()) return more;
  choice.raw += more;
  const ToolForm& form = asked_.text.form();
  if (form.kind == ToolForm::Kind::channels) return "";
  const size_t begin = choice.raw.find_first_not_of(" \t\r\n");
  if (form.mark().empty()) {  // an answer that begins like a call may be one
    if (begin == std::string::npos || choice.raw[begin] == '{') return "";
    return choice.raw.substr(choice.sent);
  }
  return choice.before_calls.add(more);
}

void ApiExchange::add_piece(size_t index, const AnswerEngine::Piece& piece) {
  if (failed_) return;
  if (!std::exchange(had_token_, true)) metrics_.add_first_token_s(seconds_since(asked_.arrived));
  Choice& choice = choices_[index];
  if (asked_.chat) {
    for (Json& token : chat_tokens(asked_.text.text().tokenizer, piece.tokens)) choice.chat_tokens.push_back(token);
  } else {
    choice.completion_tokens.add(piece.tokens);
  }
  if (!asked_.request.stream) return;
  std::string text = std::exchange(choice.echoed, "");
  const std::string content = certain_content(choice, piece.text);
  choice.sent += content.size();
  text +=
      asked_.text.calls_have_special_tokens() && reads_calls() ? asked_.text.without_special_tokens(content) : content;
  if (text.empty()) return;  // what likelihoods there are go with the next text
  send_part(index, asked_.chat ? Json{{"content", text}} : Json(text), nullptr);
}

// The message of an answer with its calls.
ApiExchange::Json ApiExchange::read_answer(Choice& choice) const {
  Json message = {{"role", "assistant"}, {"content", choice.answer.text}, {"refusal", nullptr}};
  if (!reads_calls()) return message;
  const ToolForm& form = asked_.text.form();
  ToolAnswer answer = form.read(choice.answer.text, asked_.request.tools);
  if (asked_.text.calls_have_special_tokens()) answer.content = asked_.text.without_special_tokens(answer.content);
  message["content"] = answer.content;
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  if (answer.calls.empty()) return message;
  if (answer.content.find_first_not_of(" \t\r\n") == std::string::npos) message["content"] = nullptr;
  if (!asked_.request.parallel_tools) answer.calls.resize(1);
  message["tool_calls"] = Json::array();
  for (const ToolCall& call : answer.calls) message["tool_calls"].push_back(call_json(call));
  return message;
}

// What was held back while it could have been a call, or the calls.
void ApiExchange::send_rest(size_t index, const Json& message) {
  Choice& choice = choices_[index];
  const ToolForm::Kind kind = asked_.text.form().kind;
  Json delta = Json::object();
  if (message.contains("reasoning_content")) delta["reasoning_content"] = message["reasoning_content"];
  if (message.contains("tool_calls")) {
    if (kind == ToolForm::Kind::channels && message["content"].is_string()) delta["content"] = message["content"];
    delta["tool_calls"] = Json::array();
    for (Json call : message["tool_calls"]) {
      Json part = {{"index", delta["tool_calls"].size()}};
      part.update(call);
      delta["tool_calls"].push_back(std::move(part));
    }
  } else if (kind == ToolForm::Kind::channels) {
    delta["content"] = message["content"];
  } else {
    const std::string left = choice.answer.text.substr(std::min(choice.sent, choice.answer.text.size()));
    if (!left.empty()) delta["content"] = asked_.text.without_special_tokens(left);
  }
  if (!delta.empty()) send_part(index, std::move(delta), nullptr);
}

void ApiExchange::add_answer(size_t index, const Answer& answer) {
  Choice& choice = choices_[index];
  choice.answer = answer;
  completion_tokens_ += std::ssize(answer.ids);
  choice.finish = reason(answer.finish);
  if (asked_.chat) {
    choice.message = read_answer(choice);
    if (choice.message.contains("tool_calls")) choice.finish = "tool_calls";
  }
  if (asked_.request.stream && !failed_) {
    if (asked_.chat && reads_calls()) send_rest(index, choice.message);
    send_part(index, asked_.chat ? Json::object() : Json(std::exchange(choice.echoed, "")), choice.finish);
  }
  if (--open_ == 0 && !failed_) finish();
}

void ApiExchange::send_whole() {
  Json whole = head(asked_.chat ? "chat.completion" : "text_completion");
  whole["choices"] = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Json part = {{"index", i}};
    if (asked_.chat) {
      part["message"] = std::move(choices_[i].message);
    } else {
      part["text"] = choices_[i].echoed + choices_[i].answer.text;
    }
    part["logprobs"] = likelihoods(choices_[i]);
    part["finish_reason"] = choices_[i].finish;
    whole["choices"].push_back(std::move(part));
  }
  whole["usage"] = usage();
  asked_.reply.send_json(200, whole, headers_);
}

void ApiExchange::finish() {
  metrics_.add_answer_s(seconds_since(asked_.arrived));
  metrics_.add_request(asked_.chat ? "chat/completions" : "completions", 200);
  if (!asked_.request.stream) return send_whole();
  if (asked_.request.include_usage) send_chunk(Json::array(), true);
  asked_.reply.event("[DONE]");
  asked_.reply.end();
}

void ApiExchange::fail(const Error& error) {
  if (std::exchange(failed_, true)) return;
  const auto* known = dynamic_cast<const ApiError*>(&error);
  const int status = known ? known->status() : error.code() == ExitCode::bad_input ? 400 : 500;
  metrics_.add_request(asked_.chat ? "chat/completions" : "completions", status);
  const Json body = known ? known->body() : ApiError(status, error.what()).body();
  if (asked_.request.stream && started_) {
    asked_.reply.event(json_text(body));
    asked_.reply.end();
  } else {
    asked_.reply.send_json(status, body);
  }
}

}  // namespace megatrain
