// What clients and tools expect of `serve` beyond answers: log-probabilities, JSON, tool calls, keys, health, metrics.
#include <cmath>
#include <future>

#include "tests/serve/served.h"

namespace megatrain::cli {

namespace {

// The characters of JSON and of tool calls in the place of upper-case letters.
const std::string kMarks = "{}[]\":,.-+\\\n_<>/()=|!?*#";

json json_tokenizer() {
  json tokenizer = tiny_tokenizer(), vocab = json::object();
  for (const auto& [token, id] : tokenizer.at("model").at("vocab").items()) {
    const bool upper = token.size() == 1 && token[0] >= 'A' && token[0] <= 'X';
    const std::string mark = upper ? kMarks.substr(static_cast<size_t>(token[0] - 'A'), 1) : token;
    vocab[mark == "\n" ? "\u010a" : mark] = id;
  }
  tokenizer["model"]["vocab"] = vocab;
  return tokenizer;
}

constexpr const char* kToolTemplate =
    "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
    "{% for m in messages %}{{ m.role + ' ' + (m.content or '') }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{{ '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}";

// A model that can write JSON and tool calls.
class JsonModel : public SpeakingModel {
 public:
  explicit JsonModel(const std::string& chat_template = kToolTemplate) {
    write_bytes(path() + "/tokenizer.json", json_tokenizer().dump());
    set("tokenizer_config.json", "chat_template", chat_template);
  }
};

json tool(const std::string& name) {
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"unit", {{"enum", {"c", "f"}}}}, {"n", {{"type", "boolean"}}}}},
              {"required", {"unit", "n"}},
              {"additionalProperties", false}}}}}};
}

void expect_arguments(const json& call) {
  const json arguments = json::parse(call.at("function").at("arguments").get<std::string>());
  EXPECT_TRUE(arguments.at("unit") == "c" || arguments.at("unit") == "f") << call;
  EXPECT_TRUE(arguments.at("n").is_boolean()) << call;
  EXPECT_EQ(call.at("type"), "function");
  EXPECT_EQ(call.at("id").get<std::string>().size(), 9u);
}

}  // namespace

TEST(ServeLogprobs, ACompletionHasItsTokensInOpenAIsForm) {
  const SpeakingModel model;  // one token per character
  const Served served(model);
  const json body = {{"prompt", "one two"}, {"temperature", 0}, {"max_tokens", 6}, {"logprobs", 3}};
  const json choice = served.complete(body).at("choices").at(0);
  const json& scored = choice.at("logprobs");
  const std::string text = choice.at("text");
  ASSERT_EQ(scored.at("tokens").size(), 6u);
  std::string joined;
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(scored.at("text_offset").at(i), joined.size());
    joined += scored.at("tokens").at(i);
    EXPECT_EQ(scored.at("top_logprobs").at(i).size(), 3u);
    double best = -1e9, sum = 0;
    for (const auto& [token, log_prob] : scored.at("top_logprobs").at(i).items()) {
      best = std::max(best, log_prob.get<double>());
      sum += std::exp(log_prob.get<double>());
    }
    EXPECT_EQ(scored.at("token_logprobs").at(i), best);  // greedy: the best is the token, to the last bit
    EXPECT_LE(sum, 1 + 1e-6);
  }
  EXPECT_EQ(joined, text);

  json events = json::array();
  std::string streamed;
  for (const std::string& event : served.stream("/v1/completions", body)) {
    if (event == "[DONE]") continue;
    const json part = json::parse(event).at("choices").at(0);
    streamed += part.at("text");
    for (const json& value : part.at("logprobs").at("token_logprobs")) events.push_back(value);
  }
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(events, scored.at("token_logprobs"));
}

// What lm-evaluation-harness asks for.
TEST(ServeLogprobs, EchoScoresEveryPromptOfOneRequest) {
  const SpeakingModel model;
  const Served served(model, {"--max-sequences=2"});
  const json prompts = {{5, 6, 7, 8, 9}, {30, 31}, {4, 4, 4, 4, 4, 4, 4}};
  const json body = {{"prompt", prompts}, {"temperature", 0}, {"max_tokens", 1}, {"logprobs", 1}, {"echo", true}};
  const json choices = served.complete(body).at("choices");
  ASSERT_EQ(choices.size(), 3u);
  json without = body;
  without["max_tokens"] = 0;
  const json alone = served.complete(without).at("choices");
  for (size_t i = 0; i < 3; ++i) {
    const json &scored = choices.at(i).at("logprobs"), &prompt_only = alone.at(i).at("logprobs");
    const size_t size = prompts.at(i).size();
    EXPECT_EQ(choices.at(i).at("index"), i);
    EXPECT_EQ(scored.at("tokens").size(), size + 1);
    EXPECT_EQ(prompt_only.at("tokens").size(), size);
    EXPECT_TRUE(scored.at("token_logprobs").at(0).is_null());
    EXPECT_TRUE(scored.at("top_logprobs").at(0).is_null());
    const std::vector<int32_t> ids = prompts.at(i);
    EXPECT_EQ(alone.at(i).at("text"), text_of(ids));
    EXPECT_EQ(choices.at(i).at("text").get<std::string>().substr(0, size), text_of(ids));
    for (size_t at = 1; at < size; ++at) {
      EXPECT_EQ(scored.at("text_offset").at(at), at);
      EXPECT_NEAR(scored.at("token_logprobs").at(at).get<double>(),
                  prompt_only.at("token_logprobs").at(at).get<double>(), 1e-5);
      // the same as an answer's: asked for one token with all alternatives
      const std::vector<int32_t> before(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(at));
      const json next = served.complete({{"prompt", before}, {"temperature", 0}, {"max_tokens", 1}, {"logprobs", 20}});
      const json& top = next.at("choices").at(0).at("logprobs").at("top_logprobs").at(0);
      const std::string token = scored.at("tokens").at(at);
      if (!top.contains(token)) continue;
      EXPECT_NEAR(top.at(token).get<double>(), scored.at("token_logprobs").at(at).get<double>(), 1e-5);
    }
  }
  const json echoed = served.complete({{"prompt", "ab"}, {"echo", true}, {"max_tokens", 0}});
  EXPECT_EQ(echoed.at("choices").at(0).at("text"), "ab");
  EXPECT_EQ(echoed.at("usage").at("completion_tokens"), 0);
  EXPECT_EQ(streamed_text(served.stream("/v1/completions", without), 1), text_of(prompts.at(1)));
}

TEST(ServeLogprobs, AChatHasTokensWithBytesAndAlternatives) {
  const SpeakingModel model;
  const Served served(model);
  const json body = asked("hello", {{"logprobs", true}, {"top_logprobs", 2}, {"max_tokens", 5}});
  const json choice = served.chat(body).at("choices").at(0);
  std::string joined;
  for (const json& token : choice.at("logprobs").at("content")) {
    joined += token.at("token");
    EXPECT_EQ(token.at("bytes").at(0), static_cast<unsigned char>(token.at("token").get<std::string>()[0]));
    EXPECT_EQ(token.at("top_logprobs").size(), 2u);
    EXPECT_EQ(token.at("top_logprobs").at(0).at("logprob"), token.at("logprob"));
  }
  EXPECT_EQ(joined, content(json{{"choices", {choice}}}));
  std::string streamed;
  for (const std::string& event : served.stream("/v1/chat/completions", body)) {
    if (event == "[DONE]") continue;
    const json logprobs = json::parse(event).at("choices").at(0).at("logprobs");
    if (logprobs.is_null()) continue;
    for (const json& token : logprobs.at("content")) streamed += token.at("token");
  }
  EXPECT_EQ(streamed, joined);
  EXPECT_TRUE(served.chat(asked("hello")).at("choices").at(0).at("logprobs").is_null());
  const ClientReply large =
      served.post("/v1/chat/completions",
                  asked("hello", {{"logprobs", true}, {"top_logprobs", 20}, {"n", 128}, {"max_tokens", 100000}}));
  EXPECT_EQ(large.status, 200) << large.body;  // the context of 128 bounds it
}

TEST(ServeFormat, EveryFinishedAnswerIsJsonOfTheSchema) {
  const JsonModel model;
  const Served served(model);
  const json schema = {{"type", "object"},
                       {"properties",
                        {{"kind", {{"enum", {"cat", "dog"}}}},
                         {"tags", {{"type", "array"}, {"items", {{"type", "boolean"}}}, {"maxItems", 2}}},
                         {"note", {{"type", "string"}, {"maxLength", 4}}}}},
                       {"required", {"kind", "tags", "note"}},
                       {"additionalProperties", false}};
  const json format = {{"type", "json_schema"}, {"json_schema", {{"name", "pet"}, {"schema", schema}}}};
  int finished = 0;
  for (int seed = 0; seed < 12; ++seed) {
    const json body =
        asked("a pet", {{"response_format", format}, {"temperature", 1.5}, {"seed", seed}, {"max_tokens", 100}});
    const json choice = served.chat(body).at("choices").at(0);
    EXPECT_EQ(streamed_text(served.stream("/v1/chat/completions", body)),
              choice.at("message").at("content").get<std::string>());
    if (choice.at("finish_reason") != "stop") continue;
    ++finished;
    const json value = json::parse(choice.at("message").at("content").get<std::string>());
    EXPECT_EQ(value.size(), 3u) << value;
    EXPECT_TRUE(value.at("kind") == "cat" || value.at("kind") == "dog") << value;
    EXPECT_LE(value.at("tags").size(), 2u);
    EXPECT_LE(value.at("note").get<std::string>().size(), 4u * 4u);
  }
  EXPECT_GT(finished, 3);
  const json object = served.chat(asked("x", {{"response_format", {{"type", "json_object"}}}}));
  EXPECT_EQ(content(object).at(0), '{');
  const json wrong = {{"type", "json_schema"},
                      {"json_schema", {{"name", "n"}, {"schema", {{"type", "string"}, {"pattern", "a+"}}}}}};
  const ClientReply refused = served.post("/v1/chat/completions", asked("x", {{"response_format", wrong}}));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json().at("error").at("param"), "response_format");
  EXPECT_NE(refused.body.find("pattern"), std::string::npos) << refused.body;
}

TEST(ServeFormat, AVocabularyThatCannotWriteJsonIsSaidSo) {
  const SpeakingModel model;  // letters and digits alone
  const Served served(model);
  const json body = asked("x", {{"response_format", {{"type", "json_object"}}}});
  const ClientReply reply = served.post("/v1/chat/completions", body);
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("vocabulary"), std::string::npos) << reply.body;
  EXPECT_EQ(served.chat(asked("still there")).at("choices").size(), 1u);
}

TEST(ServeTools, ARequiredCallIsOneOfTheTools) {
  const JsonModel model;
  const Served served(model);
  const json tools = {tool("weather"), tool("clock")};
  for (int seed = 0; seed < 6; ++seed) {
    json body = asked("call", {{"tools", tools},
                               {"tool_choice", "required"},
                               {"parallel_tool_calls", false},
                               {"temperature", 1.5},
                               {"seed", seed},
                               {"max_tokens", 120}});
    if (seed % 2 == 1) body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "clock"}}}};
    const json choice = served.chat(body).at("choices").at(0);
    if (choice.at("finish_reason") == "length") continue;  // blanks may fill it
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls") << choice;
    EXPECT_TRUE(choice.at("message").at("content").is_null());
    const json& calls = choice.at("message").at("tool_calls");
    ASSERT_EQ(calls.size(), 1u);
    expect_arguments(calls.at(0));
    if (seed % 2 == 1) {
      EXPECT_EQ(calls.at(0).at("function").at("name"), "clock");
    }
    json streamed;
    std::string finish;
    for (const std::string& event : served.stream("/v1/chat/completions", body)) {
      if (event == "[DONE]") continue;
      const json part = json::parse(event).at("choices").at(0);
      if (part.at("delta").contains("tool_calls")) streamed = part.at("delta").at("tool_calls");
      if (part.at("finish_reason").is_string()) finish = part.at("finish_reason");
    }
    ASSERT_EQ(streamed.size(), 1u);
    EXPECT_EQ(streamed.at(0).at("function"), calls.at(0).at("function"));
    EXPECT_EQ(streamed.at(0).at("index"), 0);
    EXPECT_EQ(finish, "tool_calls");
  }
}

TEST(ServeTools, CallsInTheHistoryAreRenderedByTheTemplate) {
  const JsonModel model;
  const Served served(model);
  const json call = {
      {"id", "abcdefgh1"}, {"type", "function"}, {"function", {{"name", "clock"}, {"arguments", "{\"unit\": \"c\"}"}}}};
  const auto tokens = [&](const json& messages) {
    return served.chat({{"messages", messages}, {"tools", {tool("clock")}}, {"temperature", 0}, {"max_tokens", 2}})
        .at("usage")
        .at("prompt_tokens")
        .get<int>();
  };
  const json question = user("a"), result = {{"role", "tool"}, {"tool_call_id", "abcdefgh1"}, {"content", "noon"}};
  const int without = tokens({question, {{"role", "assistant"}, {"content", ""}}, result}),
            with = tokens({question, {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}}, result});
  const std::string written = "<tool_call>\n{\"name\": \"clock\", \"arguments\": {\"unit\": \"c\"}}\n</tool_call>";
  EXPECT_EQ(with - without, static_cast<int>(written.size()));
  json broken = call;
  broken["function"]["arguments"] = "{\"unit\": ";
  const ClientReply reply = served.post(
      "/v1/chat/completions", {{"messages", {question, {{"role", "assistant"}, {"tool_calls", {broken}}}, result}}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("no JSON"), std::string::npos) << reply.body;
}

TEST(ServeTools, ATemplateWithoutToolsRefusesThem) {
  const SpeakingModel model;
  const Served served(model);
  const ClientReply reply = served.post("/v1/chat/completions", asked("x", {{"tools", {tool("clock")}}}));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json().at("error").at("param"), "tools");
  EXPECT_EQ(served.chat(asked("x", {{"tools", {tool("clock")}}, {"tool_choice", "none"}})).at("choices").size(), 1u);
}

TEST(ServeState, HealthAndMetricsSayHowItDoes) {
  const SpeakingModel model;
  const Served served(model);
  served.chat(asked("hello", {{"max_tokens", 4}}));
  served.post("/v1/completions", {{"prompt", 5.5}});
  const json health = ask(served.port(), "GET", "/health").json();
  EXPECT_EQ(health.at("status"), "ok");
  EXPECT_EQ(health.at("waiting"), 0);
  const ClientReply reply = ask(served.port(), "GET", "/metrics");
  EXPECT_NE(reply.head.find("text/plain; version=0.0.4"), std::string::npos);
  for (const char* line : {"megatrain_requests_total{endpoint=\"chat/completions\",status=\"200\"} 1\n",
                           "megatrain_requests_total{endpoint=\"completions\",status=\"400\"} 1\n",
                           "megatrain_queue_seconds_count 1\n", "megatrain_queue_seconds_bucket{le=\"+Inf\"} 1\n",
                           "megatrain_first_token_seconds_count 1\n", "megatrain_queue_limit_seconds 600\n",
                           "megatrain_answer_places 8\n", "# TYPE megatrain_queue_seconds histogram\n"})
    EXPECT_NE(reply.body.find(line), std::string::npos) << line << reply.body;
  std::istringstream lines(reply.body);
  for (std::string line; std::getline(lines, line);)  // every line is a comment or a name and a number
    EXPECT_TRUE(line.starts_with("# ") || (line.find(' ') != std::string::npos && line.starts_with("megatrain_")))
        << line;
}

TEST(ServeState, ARequestWaitsForABoundedTime) {
  const Served served(endless(), {"--context=200000", "--max-sequences=1", "--max-wait=1"});
  HttpClient first(served.port());
  first.send("POST", "/v1/chat/completions", asked("go on", {{"stream", true}, {"max_tokens", 150000}}).dump());
  ClientReply head;
  ASSERT_TRUE(first.read_head(head));
  EXPECT_NE(head.head.find("X-Queue-Ms: "), std::string::npos) << head.head;
  for (const bool stream : {false, true}) {
    const ClientReply late = served.post("/v1/chat/completions", asked("next", {{"stream", stream}}));
    EXPECT_EQ(late.status, 503) << late.body;
    EXPECT_EQ(late.json().at("error").at("code"), "queue_timeout");
    EXPECT_NE(late.head.find("Retry-After"), std::string::npos);
  }
  first.close();
  const ClientReply next = served.post("/v1/chat/completions", asked("next"));
  EXPECT_EQ(next.status, 200);
  EXPECT_NE(next.head.find("X-Queue-Ms: "), std::string::npos);
}

TEST(ServeKeys, EverythingButHealthAndThePageNeedsOne) {
  const SpeakingModel model;
  write_bytes(model / "keys", "first-key\n\nsecond.key_2\r\n");
  const Served served(model, {"--api-key-file=" + (model / "keys")});
  const std::string host = "Host: localhost\r\n";
  for (const std::string header : {"", "Authorization: Bearer wrong\r\n", "Authorization: first-key\r\n",
                                   "Authorization: Bearer first-key2\r\n", "Authorization: Bearer \r\n"}) {
    for (const char* path : {"/v1/models", "/v1/models/model", "/metrics"}) {
      const ClientReply reply = ask(served.port(), "GET", path, "", host + header);
      EXPECT_EQ(reply.status, 401) << path << header;
      EXPECT_EQ(reply.json().at("error").at("code"), "invalid_api_key");
      EXPECT_NE(reply.head.find("WWW-Authenticate: Bearer"), std::string::npos);
    }
    EXPECT_EQ(ask(served.port(), "POST", "/v1/chat/completions", asked("x").dump(), host + header).status, 401);
  }
  for (const std::string header : {"Authorization: Bearer first-key\r\n", "authorization: bearer second.key_2\r\n"}) {
    EXPECT_EQ(ask(served.port(), "GET", "/v1/models", "", host + header).status, 200) << header;
    EXPECT_EQ(ask(served.port(), "POST", "/v1/chat/completions", asked("x").dump(), host + header).status, 200);
  }
  EXPECT_EQ(ask(served.port(), "GET", "/health").status, 200);
  EXPECT_EQ(ask(served.port(), "GET", "/").status, 200);

  write_bytes(model / "empty", "\n");
  write_bytes(model / "blank", "a key\n");
  expect_refusal(model.words({"--api-key-file=" + (model / "empty")}, "serve"), ExitCode::bad_config, {"has no key"});
  expect_refusal(model.words({"--api-key-file=" + (model / "blank")}, "serve"), ExitCode::bad_config, {"blank:1:"});
  expect_refusal(model.words({"--api-key-file=" + (model / "none")}, "serve"), ExitCode::bad_input, {"none"});
  expect_refusal(model.words({"--max-wait=0"}, "serve"), ExitCode::bad_config, {"--max-wait is 0"});
}

TEST(ServePage, IsOneFileThatLoadsNothing) {
  const SpeakingModel model;
  const Served served(model);
  const ClientReply page = ask(served.port(), "GET", "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.head.find("Content-Type: text/html; charset=utf-8"), std::string::npos);
  for (const char* part : {"src=", "http://", "https://", "@import", "innerHTML"})
    EXPECT_EQ(page.body.find(part), std::string::npos) << part;
  EXPECT_EQ(ask(served.port(), "GET", "/", "", "Host: evil.example\r\n").status, 403);
}

}  // namespace megatrain::cli
