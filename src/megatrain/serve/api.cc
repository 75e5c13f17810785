#include "megatrain/serve/api.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/dataset/sample_json.h"
#include "megatrain/io/file.h"
#include "megatrain/serve/api_error.h"
#include "megatrain/serve/api_request.h"
#include "megatrain/serve/chat_page.h"
#include "megatrain/serve/exchange.h"
#include "megatrain/serve/serve_metrics.h"
#include "megatrain/serve/served_text.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;
using Clock = AnswerEngine::Clock;

constexpr int64_t kDefaultCompletionTokens = 16;  // OpenAI's default
// Likelihoods in one reply, alternatives included. Each takes about 100 bytes of it.
constexpr int64_t kMostLikelihoods = 1 << 20;

struct ServedModel {
  std::string name;
  size_t adapter;
  std::unique_ptr<ServedText> text;
};

// What all handlers share.
struct Service {
  AnswerEngine& engine;
  ApiOptions options;
  std::vector<ServedModel> models;
  ServeMetrics metrics = {};

  const ServedModel* find(const std::string& name) const {  // empty: the base
    if (name.empty()) return &models.front();
    const auto found = std::ranges::find(models, name, &ServedModel::name);
    return found == models.end() ? nullptr : &*found;
  }
};
using ServicePointer = std::shared_ptr<Service>;

// Refuses, before encoding, text that cannot fit into the model's context whatever its tokens are.
std::vector<int32_t> encode(const std::string& text, bool chat, const Service& service, const ServedText& model) {
  const int64_t context = service.engine.context();
  const size_t most = static_cast<size_t>(context) * model.longest_token();
  if (text.size() > most) {
    throw ApiError(
        400,
        fmt::format(
            "the prompt has {} bytes, but this server's context of {} tokens holds at most {} bytes; shorten it",
            text.size(), context, most),
        chat ? "messages" : "prompt", "context_length_exceeded");
  }
  return model.text().tokenizer.encode(text, !chat);
}

// The messages with the arguments of earlier calls as the template wants them.
Json with_arguments(const Json& messages, const ToolForm& form) {
  Json changed = messages;
  for (size_t i = 0; i < changed.size(); ++i) {
    if (!changed[i].contains("tool_calls")) continue;
    for (Json& call : changed[i]["tool_calls"]) {
      Json& arguments = call["function"]["arguments"];
      if (form.arguments_as_text && arguments.is_object()) arguments = arguments.dump();
      if (form.arguments_as_text || !arguments.is_string()) continue;
      const std::string where = fmt::format("messages[{}].tool_calls", i);
      try {
        arguments = parse_sample_json(arguments.get<std::string>());
      } catch (const Error& error) {
        throw ApiError(400, fmt::format("'{}' has arguments that are no JSON: {}", where, error.what()), where);
      }
      if (!arguments.is_object())
        throw ApiError(400, fmt::format("'{}' has arguments that are no JSON object", where), where);
    }
  }
  return changed;
}

Prompt chat_prompt(const ApiRequest& request, const Service& service, const ServedModel& model) {
  const ModelText& text = model.text->text();
  if (!text.chat_template)
    throw ApiError(400, fmt::format("{} has no chat template; use /v1/completions", model.name), "messages");
  const bool tools = !request.tools.is_null() && request.tool_choice != ApiRequest::ToolChoice::none;
  if (tools && !model.text->form().shows_tools)
    throw ApiError(400, "this model's chat template has no place for tools; leave 'tools' out", "tools",
                   "unsupported_parameter");
  const std::string rendered = text.chat_template
                                   ->render({.messages = with_arguments(request.messages, model.text->form()),
                                             .tools = tools ? request.tools : Json(),
                                             .add_generation_prompt = true})
                                   .text;
  return {.ids = encode(rendered, true, service, *model.text),
          .chat = true,
          .max_tokens = request.max_tokens.value_or(service.engine.context())};
}

std::vector<Prompt> prompts_of(const ApiRequest& request, bool chat, const Service& service, const ServedModel& model) {
  if (chat) return {chat_prompt(request, service, model)};
  std::vector<Prompt> prompts;
  for (const auto& asked : request.prompts) {
    Prompt& prompt = prompts.emplace_back();
    if (const std::string* text = std::get_if<std::string>(&asked)) {
      prompt.ids = encode(*text, false, service, *model.text);
    } else {
      prompt.ids = std::get<std::vector<int32_t>>(asked);
      for (const int32_t id : prompt.ids) {
        if (id >= service.engine.vocabulary())
          throw ApiError(400,
                         fmt::format("'prompt' has the invalid token id {}; expected 0 to {}", id,
                                     service.engine.vocabulary() - 1),
                         "prompt");
      }
    }
    prompt.max_tokens = request.max_tokens.value_or(kDefaultCompletionTokens);
  }
  return prompts;
}

void bound_likelihoods(const ApiRequest& request, const std::vector<Prompt>& prompts, const Service& service) {
  if (!request.logprobs) return;
  int64_t tokens = 0;
  for (const Prompt& prompt : prompts) {
    const int64_t size = std::ssize(prompt.ids);
    const int64_t left = std::max<int64_t>(service.engine.context() - size, 0);
    tokens += request.n * (std::min(prompt.max_tokens, left) + (request.echo ? size : 0));
  }
  if (tokens * (request.top_logprobs + 1) <= kMostLikelihoods) return;
  throw ApiError(400,
                 fmt::format("'logprobs' of {} tokens with {} alternatives each are more than the {} of a reply; give "
                             "'max_tokens', or send fewer prompts at once",
                             tokens, request.top_logprobs, kMostLikelihoods),
                 "logprobs");
}

ApiError no_such_model(const std::string& asked, const Service& service) {
  std::vector<std::string> names;
  for (const ServedModel& model : service.models) names.push_back(fmt::format("\"{}\"", model.name));
  return {404, fmt::format("no such model {}; this server has {}", printable(asked), fmt::join(names, ", ")), "model",
          "model_not_found"};
}

ApiError overloaded(const std::string& message) { return {503, message, "", "overloaded"}; }

std::vector<AnswerEngine::Job> jobs_of(const std::shared_ptr<ApiExchange>& exchange, const ApiRequest& request,
                                       const std::vector<Prompt>& prompts, const ServedModel& model) {
  std::vector<AnswerEngine::Job> jobs;
  for (size_t i = 0; i < exchange->answers(); ++i) {
    const Prompt& prompt = prompts[i / static_cast<size_t>(request.n)];
    AnswerEngine::Job job{.prompt = prompt,
                          .text = &model.text->text(),
                          .adapter = model.adapter,
                          .sampling = request.sampling,
                          .sequence = i,
                          .stops = request.stops};
    job.scoring = {.answer = request.logprobs, .prompt = request.logprobs && request.echo, .top = request.top_logprobs};
    job.score_end = !prompt.chat;
    job.constraint = model.text->constraint(request);
    job.keep_special_tokens = prompt.chat && model.text->calls_have_special_tokens() &&
                              (!request.tools.is_null() || request.format != ApiRequest::Format::text);
    job.on_start = [exchange] { exchange->start(); };
    job.on_prompt = [exchange, i](const std::vector<Likelihood>& tokens) { exchange->add_prompt(i, tokens); };
    job.on_piece = [exchange, i](const AnswerEngine::Piece& piece) { exchange->add_piece(i, piece); };
    job.on_answer = [exchange, i](const Answer& answer) { exchange->add_answer(i, answer); };
    job.on_error = [exchange](const Error& error) { exchange->fail(error); };
    jobs.push_back(std::move(job));
  }
  return jobs;
}

void answer_request(Service& service, bool chat, const std::string& body, const HttpReply& reply,
                    Clock::time_point arrived) {
  ApiRequest request = chat ? parse_chat_request(body) : parse_completion_request(body);
  const ServedModel* model = service.find(request.model);
  if (!model) throw no_such_model(request.model, service);
  if (!request.seeded) request.sampling.seed = random_number();
  const std::vector<Prompt> prompts = prompts_of(request, chat, service, *model);
  bound_likelihoods(request, prompts, service);
  const auto exchange = std::make_shared<ApiExchange>(ApiExchange::Asked{.reply = reply,
                                                                         .chat = chat,
                                                                         .request = request,
                                                                         .text = *model->text,
                                                                         .model = model->name,
                                                                         .arrived = arrived},
                                                      prompts, service.metrics);
  std::vector<AnswerEngine::Job> jobs = jobs_of(exchange, request, prompts, *model);
  service.engine.check(jobs);
  const auto most_wait =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(service.options.most_wait_s));
  const std::vector<AnswerEngine::Number> numbers = service.engine.submit(std::move(jobs), arrived + most_wait);
  reply.on_gone([&engine = service.engine, numbers] { engine.cancel(numbers); });
}

// Sends what went wrong and counts it.
void send_refusal(Service& service, const std::string& endpoint, const HttpReply& reply, const ApiError& error,
                  const HttpHeaders& headers = {}) {
  service.metrics.add_request(endpoint, error.status());
  reply.send_json(error.status(), error.body(), headers);
}

void read_request(Service& service, bool chat, const std::string& body, const HttpReply& reply,
                  Clock::time_point arrived) {
  const std::string endpoint = chat ? "chat/completions" : "completions";
  if (reply.gone()) return;
  try {
    if (std::chrono::duration<double>(Clock::now() - arrived).count() > service.options.most_wait_s)
      throw ApiError(503, "this request waited too long to be read; try again later", "", "queue_timeout");
    answer_request(service, chat, body, reply, arrived);
  } catch (const ApiError& error) {
    send_refusal(service, endpoint, reply, error);
  } catch (const Error& error) {
    send_refusal(service, endpoint, reply, {error.code() == ExitCode::bad_input ? 400 : 500, error.what()});
  } catch (const std::exception& error) {
    send_refusal(service, endpoint, reply, {500, error.what()});
  }
}

// A handler for those who have a key.
HttpServer::Handler with_key(const ServicePointer& service, HttpServer::Handler handler) {
  return [service, handler = std::move(handler)](const HttpRequest& http, const HttpReply& reply) {
    if (service->options.keys.allow(http.authorization)) return handler(http, reply);
    send_refusal(*service, "unauthorized", reply,
                 {401, "this server needs an API key: send it as Authorization: Bearer KEY", "", "invalid_api_key"},
                 {{"WWW-Authenticate", "Bearer"}});
  };
}

void add_endpoint(HttpServer& server, RequestPool& pool, const ServicePointer& service, const std::string& path,
                  bool chat) {
  server.on("POST", path, with_key(service, [&pool, service, chat](const HttpRequest& http, const HttpReply& reply) {
              const Clock::time_point arrived = Clock::now();
              const bool taken = pool.post(std::ssize(http.body), [service, chat, body = http.body, reply, arrived] {
                read_request(*service, chat, body, reply, arrived);
              });
              if (!taken)
                send_refusal(*service, chat ? "chat/completions" : "completions", reply,
                             overloaded("too many requests of this size are waiting; try again later"));
            }));
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

void add_models(HttpServer& server, const ServicePointer& service) {
  const int64_t created = static_cast<int64_t>(std::time(nullptr));
  const auto card = [created, service](const ServedModel& model) {
    Json json = {{"id", model.name},
                 {"object", "model"},
                 {"created", created},
                 {"owned_by", "megatrain"},
                 {"max_model_len", service->engine.context()}};
    if (model.adapter > 0) json["parent"] = service->models.front().name;
    return json;
  };
  server.on("GET", "/v1/models", with_key(service, [card, service](const HttpRequest&, const HttpReply& reply) {
              Json data = Json::array();
              for (const ServedModel& model : service->models) data.push_back(card(model));
              reply.send_json(200, {{"object", "list"}, {"data", std::move(data)}});
            }));
  server.on("GET", "/v1/models/*", with_key(service, [card, service](const HttpRequest& http, const HttpReply& reply) {
              const std::string asked = unescaped(http.path.substr(std::string_view("/v1/models/").size()));
              const ServedModel* found = asked.empty() ? nullptr : service->find(asked);
              if (found) return reply.send_json(200, card(*found));
              reply.send_json(404, no_such_model(asked, *service).body());
            }));
}

void add_state(HttpServer& server, const ServicePointer& service) {
  server.on("GET", "/health", [service](const HttpRequest&, const HttpReply& reply) {
    reply.send_json(200, {{"status", "ok"},
                          {"model", service->models.front().name},
                          {"running", service->engine.running()},
                          {"waiting", service->engine.waiting()}});
  });
  server.on("GET", "/metrics", with_key(service, [service](const HttpRequest&, const HttpReply& reply) {
              const AnswerEngine& engine = service->engine;
              reply.send(200, "text/plain; version=0.0.4; charset=utf-8",
                         service->metrics.text({.running = engine.running(),
                                                .waiting = engine.waiting(),
                                                .places = engine.sequences(),
                                                .generated_tokens = engine.tokens(),
                                                .reused_tokens = engine.reused_tokens(),
                                                .most_wait_s = service->options.most_wait_s}));
            }));
  server.on("GET", "/",
            [](const HttpRequest&, const HttpReply& reply) { reply.send(200, "text/html; charset=utf-8", kChatPage); });
}

}  // namespace

void serve_api(HttpServer& server, RequestPool& pool, const ApiModels& models, const ApiOptions& options) {
  const ServicePointer service(new Service{.engine = models.engine, .options = options, .models = {}});
  for (const ApiModel& model : models.list)
    service->models.push_back({.name = model.name,
                               .adapter = model.adapter,
                               .text = std::make_unique<ServedText>(model.text, models.engine.vocabulary())});
  add_models(server, service);
  add_state(server, service);
  add_endpoint(server, pool, service, "/v1/chat/completions", true);
  add_endpoint(server, pool, service, "/v1/completions", false);
}

}  // namespace megatrain
