#include "megatrain/serve/api.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/io/file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/serve/api_error.h"
#include "megatrain/serve/api_request.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultCompletionTokens = 16;  // OpenAI's default

uint64_t random_number() {
  thread_local std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

const char* reason(Finish finish) { return finish == Finish::stop ? "stop" : "length"; }

// A request in progress. Once it is submitted, only the engine's thread uses it.
struct Exchange {
  HttpReply reply;
  bool chat;
  ApiRequest request;
  std::string model, id;
  int64_t created = static_cast<int64_t>(std::time(nullptr));
  int64_t prompt_tokens = 0, completion_tokens = 0;
  std::vector<Answer> answers;  // one per choice
  size_t open = 0;              // choices without an answer
  bool failed = false;

  Json head(const char* object) const {
    return {{"id", id}, {"object", object}, {"created", created}, {"model", model}};
  }
  Json usage() const {
    return {{"prompt_tokens", prompt_tokens},
            {"completion_tokens", completion_tokens},
            {"total_tokens", prompt_tokens + completion_tokens}};
  }

  void send_chunk(Json choices, bool with_usage = false) const {
    Json chunk = head(chat ? "chat.completion.chunk" : "text_completion");
    chunk["choices"] = std::move(choices);
    if (request.include_usage) chunk["usage"] = with_usage ? usage() : Json(nullptr);
    reply.event(json_text(chunk));
  }
  void send_part(size_t choice, const std::string& text, const Json& finish) const {
    Json part = {{"index", choice}};
    if (chat) {
      part["delta"] = text.empty() ? Json::object() : Json{{"content", text}};
    } else {
      part["text"] = text;
    }
    part["logprobs"] = nullptr;
    part["finish_reason"] = finish;
    send_chunk(Json::array({std::move(part)}));
  }
  void begin() const {
    if (!request.stream) return;
    reply.begin_events();
    if (!chat) return;
    for (size_t i = 0; i < answers.size(); ++i) {
      send_chunk(Json::array({{{"index", i},
                               {"delta", {{"role", "assistant"}, {"content", ""}}},
                               {"logprobs", nullptr},
                               {"finish_reason", nullptr}}}));
    }
  }

  void add_answer(size_t choice, const Answer& answer) {
    completion_tokens += std::ssize(answer.ids);
    if (request.stream) send_part(choice, "", reason(answer.finish));
    answers[choice] = answer;
    if (--open > 0 || failed) return;
    if (request.stream) {
      if (request.include_usage) send_chunk(Json::array(), true);
      reply.event("[DONE]");
      reply.end();
      return;
    }
    Json whole = head(chat ? "chat.completion" : "text_completion");
    whole["choices"] = Json::array();
    for (size_t i = 0; i < answers.size(); ++i) {
      Json part = {{"index", i}};
      if (chat) {
        part["message"] = {{"role", "assistant"}, {"content", answers[i].text}, {"refusal", nullptr}};
      } else {
        part["text"] = answers[i].text;
      }
      part["logprobs"] = nullptr;
      part["finish_reason"] = reason(answers[i].finish);
      whole["choices"].push_back(std::move(part));
    }
    whole["usage"] = usage();
    reply.send_json(200, whole);
  }

  void fail(const std::string& message) {
    if (std::exchange(failed, true)) return;
    const Json error = ApiError(500, message).body();
    if (request.stream) {
      reply.event(json_text(error));
      reply.end();
    } else {
      reply.send_json(500, error);
    }
  }
};

// Bytes of the longest token. A special token may also absorb blanks around it, which its text does not show; a client
// that sends megabytes of them is refused, too.
size_t longest_token(const Tokenizer& tokenizer) {
  size_t longest = 1;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max(longest, tokenizer.token_of(static_cast<int32_t>(id)).size());
  return longest;
}

// The model of a request.
struct Asked {
  AnswerEngine& engine;
  const ModelText& text;
  const std::string& name;
  size_t longest;  // longest_token()
};

// Refuses, before encoding, text that cannot fit into the model's context whatever its tokens are.
std::vector<int32_t> encode(const std::string& text, bool chat, const Asked& model) {
  const int64_t context = model.engine.context();
  const size_t most = static_cast<size_t>(context) * model.longest;
  if (text.size() > most) {
    throw ApiError(
        400,
        fmt::format(
            "the prompt has {} bytes, but this server's context of {} tokens holds at most {} bytes; shorten it",
            text.size(), context, most),
        chat ? "messages" : "prompt", "context_length_exceeded");
  }
  return model.text.tokenizer.encode(text, !chat);
}

std::vector<Prompt> prompts_of(const ApiRequest& request, bool chat, const Asked& model) {
  std::vector<Prompt> prompts;
  if (chat) {
    if (!model.text.chat_template)
      throw ApiError(400, fmt::format("{} has no chat template; use /v1/completions", model.name), "messages");
    const std::string text =
        model.text.chat_template->render({.messages = request.messages, .add_generation_prompt = true}).text;
    prompts.push_back({.ids = encode(text, true, model), .chat = true});
    prompts.back().max_tokens = request.max_tokens.value_or(model.engine.context());
    return prompts;
  }
  for (const auto& asked : request.prompts) {
    if (const std::string* text = std::get_if<std::string>(&asked)) {
      prompts.push_back({.ids = encode(*text, false, model)});
    } else {
      prompts.push_back({.ids = std::get<std::vector<int32_t>>(asked)});
      for (const int32_t id : prompts.back().ids) {
        if (id >= model.engine.vocabulary())
          throw ApiError(
              400,
              fmt::format("'prompt' has the invalid token id {}; expected 0 to {}", id, model.engine.vocabulary() - 1),
              "prompt");
      }
    }
    prompts.back().max_tokens = request.max_tokens.value_or(kDefaultCompletionTokens);
  }
  return prompts;
}

ApiError no_such_model(const std::string& asked, const ApiModels& models) {
  std::vector<std::string> names;
  for (const ApiModel& model : models.list) names.push_back(fmt::format("\"{}\"", model.name));
  return {404, fmt::format("no such model {}; this server has {}", printable(asked), fmt::join(names, ", ")), "model",
          "model_not_found"};
}

// longest_token() of every text.
using Longest = std::map<const ModelText*, size_t>;

ApiError overloaded(const std::string& message) { return {503, message, "", "overloaded"}; }

void answer_request(const ApiModels& models, const Longest& longest, bool chat, const std::string& body,
                    const HttpReply& reply) {
  ApiRequest request = chat ? parse_chat_request(body) : parse_completion_request(body);
  const ApiModel* found = models.find(request.model);
  if (!found) throw no_such_model(request.model, models);
  const Asked model{
      .engine = models.engine, .text = found->text, .name = found->name, .longest = longest.at(&found->text)};
  if (!request.seeded) request.sampling.seed = random_number();
  const std::vector<Prompt> prompts = prompts_of(request, chat, model);
  const auto exchange = std::make_shared<Exchange>(
      Exchange{.reply = reply,
               .chat = chat,
               .request = std::move(request),
               .model = model.name,
               .id = fmt::format("{}-{:016x}", chat ? "chatcmpl" : "cmpl", random_number())});
  const size_t n = static_cast<size_t>(exchange->request.n);
  exchange->answers.resize(prompts.size() * n);
  exchange->open = exchange->answers.size();
  std::vector<AnswerEngine::Job> jobs;
  for (size_t i = 0; i < exchange->answers.size(); ++i) {
    AnswerEngine::Job job{.prompt = prompts[i / n],
                          .text = &found->text,
                          .adapter = found->adapter,
                          .sampling = exchange->request.sampling,
                          .sequence = i,
                          .stops = exchange->request.stops};
    job.on_text = [exchange, i](const std::string& text) {
      if (exchange->request.stream && !exchange->failed) exchange->send_part(i, text, nullptr);
    };
    job.on_answer = [exchange, i](const Answer& answer) { exchange->add_answer(i, answer); };
    job.on_error = [exchange](const std::string& message) { exchange->fail(message); };
    jobs.push_back(std::move(job));
  }
  for (const Prompt& prompt : prompts) exchange->prompt_tokens += std::ssize(prompt.ids);
  model.engine.check(jobs);
  exchange->begin();  // before the engine knows about it
  const std::vector<AnswerEngine::Number> numbers = model.engine.submit(std::move(jobs));
  reply.on_gone([&engine = model.engine, numbers] { engine.cancel(numbers); });
}

void add_endpoint(HttpServer& server, RequestPool& pool, const ApiModels& models, const std::string& path, bool chat) {
  Longest longest;
  for (const ApiModel& model : models.list) longest[&model.text] = longest_token(model.text.tokenizer);
  server.on("POST", path, [&pool, models, longest, chat](const HttpRequest& http, const HttpReply& reply) {
    const bool taken = pool.post(std::ssize(http.body), [models, longest, chat, body = http.body, reply] {
      if (reply.gone()) return;
      try {
        answer_request(models, longest, chat, body, reply);
      } catch (const ApiError& error) {
        reply.send_json(error.status(), error.body());
      } catch (const Error& error) {
        reply.send_error(error.code() == ExitCode::bad_input ? 400 : 500, error.what());
      } catch (const std::exception& error) {
        reply.send_error(500, error.what());
      }
    });
    if (!taken) reply.send_json(503, overloaded("too many requests of this size are waiting; try again later").body());
  });
}

// Decodes "a%20b" to "a b"; malformed escapes stay.
std::string unescaped(const std::string& path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    int code = 0;
    const char* digits = path.data() + i + 1;
    const bool escape =
        path[i] == '%' && i + 2 < path.size() && std::from_chars(digits, digits + 2, code, 16).ptr == digits + 2;
    text += escape ? static_cast<char>(code) : path[i];
    if (escape) i += 2;
  }
  return text;
}

}  // namespace

const ApiModel* ApiModels::find(const std::string& name) const {
  if (name.empty()) return &list.front();
  const auto found = std::ranges::find(list, name, &ApiModel::name);
  return found == list.end() ? nullptr : &*found;
}

void serve_api(HttpServer& server, RequestPool& pool, const ApiModels& models) {
  const int64_t created = static_cast<int64_t>(std::time(nullptr));
  const auto card = [created, models](const ApiModel& model) {
    Json json = {{"id", model.name},
                 {"object", "model"},
                 {"created", created},
                 {"owned_by", "megatrain"},
                 {"max_model_len", models.engine.context()}};
    if (model.adapter > 0) json["parent"] = models.list.front().name;
    return json;
  };
  server.on("GET", "/v1/models", [card, models](const HttpRequest&, const HttpReply& reply) {
    Json data = Json::array();
    for (const ApiModel& model : models.list) data.push_back(card(model));
    reply.send_json(200, {{"object", "list"}, {"data", std::move(data)}});
  });
  server.on("GET", "/v1/models/*", [card, models](const HttpRequest& http, const HttpReply& reply) {
    const std::string asked = unescaped(http.path.substr(std::string_view("/v1/models/").size()));
    const ApiModel* found = asked.empty() ? nullptr : models.find(asked);
    if (found) return reply.send_json(200, card(*found));
    reply.send_json(404, no_such_model(asked, models).body());
  });
  add_endpoint(server, pool, models, "/v1/chat/completions", true);
  add_endpoint(server, pool, models, "/v1/completions", false);
}

}  // namespace megatrain
