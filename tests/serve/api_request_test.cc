#include "megatrain/serve/api_request.h"

#include <gtest/gtest.h>

#include "megatrain/serve/api_error.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

Json chat(const Json& more = Json::object()) {
  Json request = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}};
  request.update(more);
  return request;
}

Json completion(const Json& more = Json::object()) {
  Json request = {{"prompt", "hello"}};
  request.update(more);
  return request;
}

void expect_refusal(ApiRequest (*parse)(const std::string&), const std::string& body, const std::string& param,
                    const std::string& part) {
  try {
    parse(body);
    FAIL() << body << " was accepted";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_EQ(error.param(), param) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    const Json body_of = error.body().at("error");
    EXPECT_EQ(body_of.at("type"), "invalid_request_error");
    EXPECT_EQ(body_of.at("param"), param.empty() ? Json(nullptr) : Json(param));
  }
}

TEST(ApiRequest, ReadsWhatIsObeyed) {
  const ApiRequest request = parse_chat_request(chat({{"model", "m"},
                                                      {"max_completion_tokens", 7},
                                                      {"temperature", 0.5},
                                                      {"top_p", 0.25},
                                                      {"top_k", 3},
                                                      {"seed", -1},
                                                      {"stop", {"a", "b"}},
                                                      {"n", 2},
                                                      {"stream", true},
                                                      {"stream_options", {{"include_usage", true}}}})
                                                    .dump());
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.25);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_TRUE(request.seeded);
  EXPECT_EQ(request.sampling.seed, ~uint64_t{0});
  EXPECT_EQ(request.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.n, 2);
  EXPECT_TRUE(request.stream && request.include_usage);
}

TEST(ApiRequest, DefaultsAreOpenAIs) {
  const ApiRequest request = parse_chat_request(chat().dump());
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.top_p, 1);
  EXPECT_FALSE(request.max_tokens || request.seeded || request.stream || request.include_usage);
  EXPECT_EQ(request.n, 1);
}

TEST(ApiRequest, PartsOfTextAreOneText) {
  const Json parts = {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}};
  const ApiRequest request =
      parse_chat_request(Json{{"messages", {{{"role", "user"}, {"content", parts}, {"name", nullptr}}}}}.dump());
  EXPECT_EQ(request.messages, (Json{{{"role", "user"}, {"content", "ab"}}}));
}

TEST(ApiRequest, PromptsAreTextsOrIds) {
  const auto prompts = [](const Json& prompt) {
    return parse_completion_request(Json{{"prompt", prompt}}.dump()).prompts;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(prompts("a"), (decltype(ApiRequest::prompts){"a"}));
  EXPECT_EQ(prompts({"a", "b"}), (decltype(ApiRequest::prompts){"a", "b"}));
  EXPECT_EQ(prompts({1, 2}), (decltype(ApiRequest::prompts){Ids{1, 2}}));
  EXPECT_EQ(prompts(Json::array({{1, 2}, {3}})), (decltype(ApiRequest::prompts){Ids{1, 2}, Ids{3}}));
}

TEST(ApiRequest, ParametersThatAskForNothingAreAccepted) {
  EXPECT_NO_THROW(parse_chat_request(chat({{"user", "me"},
                                           {"tools", Json::array()},
                                           {"tool_choice", "none"},
                                           {"response_format", {{"type", "text"}}},
                                           {"parallel_tool_calls", false},
                                           {"safety_identifier", "a"},
                                           {"prompt_cache_key", "b"},
                                           {"metadata", {{"team", "c"}}},
                                           {"logprobs", false},
                                           {"frequency_penalty", 0},
                                           {"presence_penalty", 0.0},
                                           {"logit_bias", Json::object()},
                                           {"temperature", nullptr},
                                           {"stop", nullptr},
                                           {"best_of", 1},
                                           {"echo", false},
                                           {"suffix", ""}})
                                         .dump()));
  EXPECT_NO_THROW(parse_completion_request(
      completion({{"echo", false}, {"best_of", 1}, {"suffix", nullptr}, {"logprobs", false}}).dump()));
}

TEST(ApiRequest, WhatWouldBeIgnoredIsRefusedByName) {
  const std::pair<const char*, Json> kChat[] = {{"functions", Json::array({Json::object()})},
                                                {"logit_bias", {{"5", 100}}},
                                                {"frequency_penalty", 0.5},
                                                {"presence_penalty", -1},
                                                {"reasoning_effort", "low"},
                                                {"store", true},
                                                {"audio", Json::object()},
                                                {"best_of", 2},
                                                {"echo", true},
                                                {"suffix", "x"},
                                                {"modalities", {"text", "audio"}}};
  for (const auto& [name, value] : kChat)
    expect_refusal(parse_chat_request, chat({{name, value}}).dump(), name, "not supported");
  const std::pair<const char*, Json> kCompletions[] = {{"best_of", 2},
                                                       {"suffix", "x"},
                                                       {"tools", Json::array({Json::object()})},
                                                       {"tool_choice", "auto"},
                                                       {"response_format", {{"type", "json_object"}}},
                                                       {"top_logprobs", 3},
                                                       {"logit_bias", {{"5", 1}}}};
  for (const auto& [name, value] : kCompletions)
    expect_refusal(parse_completion_request, completion({{name, value}}).dump(), name, "not supported");
  expect_refusal(parse_chat_request, chat({{"tool_choice", "auto"}}).dump(), "tool_choice", "needs 'tools'");
  expect_refusal(parse_chat_request, chat({{"parallel_tool_calls", true}}).dump(), "parallel_tool_calls",
                 "needs 'tools'");
  expect_refusal(parse_chat_request, chat({{"top_logprobs", 3}}).dump(), "top_logprobs", "needs 'logprobs'");
  expect_refusal(parse_chat_request, chat({{"temprature", 1}}).dump(), "temprature", "unknown parameter");
  expect_refusal(parse_chat_request, chat({{"prompt", "a"}}).dump(), "prompt", "unknown parameter");
  expect_refusal(parse_completion_request, completion({{"messages", "a"}}).dump(), "messages", "unknown parameter");
}

TEST(ApiRequest, LogprobsAndEchoAreReadInBothForms) {
  const ApiRequest asked = parse_chat_request(chat({{"logprobs", true}, {"top_logprobs", 5}}).dump());
  EXPECT_TRUE(asked.logprobs);
  EXPECT_EQ(asked.top_logprobs, 5);
  const ApiRequest scored =
      parse_completion_request(completion({{"logprobs", 0}, {"echo", true}, {"max_tokens", 0}}).dump());
  EXPECT_TRUE(scored.logprobs && scored.echo);
  EXPECT_EQ(scored.top_logprobs, 0);
  EXPECT_EQ(scored.max_tokens, 0);
  EXPECT_FALSE(parse_completion_request(completion({{"logprobs", nullptr}}).dump()).logprobs);
  expect_refusal(parse_chat_request, chat({{"logprobs", 1}}).dump(), "logprobs", "true or false");
  expect_refusal(parse_chat_request, chat({{"logprobs", true}, {"top_logprobs", 21}}).dump(), "top_logprobs",
                 "at most 20");
  expect_refusal(parse_completion_request, completion({{"logprobs", 21}}).dump(), "logprobs", "at most 20");
  expect_refusal(parse_completion_request, completion({{"logprobs", true}}).dump(), "logprobs", "whole number");
  expect_refusal(parse_completion_request, completion({{"max_tokens", 0}}).dump(), "max_tokens", "1 or more");
}

TEST(ApiRequest, AFormatIsAnyObjectOrASchema) {
  using Format = ApiRequest::Format;
  EXPECT_EQ(parse_chat_request(chat({{"response_format", {{"type", "json_object"}}}}).dump()).format, Format::object);
  const Json schema = {{"type", "object"}};
  const ApiRequest request = parse_chat_request(
      chat({{"response_format",
             {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"strict", true}, {"schema", schema}}}}}})
          .dump());
  EXPECT_EQ(request.format, Format::schema);
  EXPECT_EQ(request.schema, schema);
  for (const Json& wrong :
       {Json("json"), Json::object(), Json{{"type", "xml"}}, Json{{"type", "json_object"}, {"more", 1}},
        Json{{"type", "json_schema"}}, Json{{"type", "json_schema"}, {"json_schema", {{"name", "n"}}}},
        Json{{"type", "json_schema"}, {"json_schema", {{"schema", schema}, {"more", 1}}}},
        Json{{"type", "json_schema"}, {"json_schema", {{"schema", true}}}}})
    expect_refusal(parse_chat_request, chat({{"response_format", wrong}}).dump(), "response_format",
                   "'response_format");
}

TEST(ApiRequest, ToolsAreReadAndCheckedByName) {
  const Json tool = {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"type", "object"}}}}}};
  const auto with = [&](const Json& more) {
    Json body = chat({{"tools", {tool}}});
    body.update(more);
    return body.dump();
  };
  const ApiRequest request = parse_chat_request(with({{"parallel_tool_calls", false}}));
  EXPECT_EQ(request.tools, Json::array({tool}));
  EXPECT_FALSE(request.parallel_tools);
  EXPECT_EQ(request.tool_choice, ApiRequest::ToolChoice::automatic);
  EXPECT_EQ(parse_chat_request(with({{"tool_choice", "none"}})).tool_choice, ApiRequest::ToolChoice::none);
  const Json choice = {{"type", "function"}, {"function", {{"name", "f"}}}};
  EXPECT_EQ(parse_chat_request(with({{"tool_choice", choice}})).named_tool, "f");
  const std::pair<Json, const char*> kBad[] = {
      {{{"tools", "f"}}, "tools"},
      {{{"tools", {1}}}, "tools"},
      {{{"tools", {{{"type", "function"}}}}}, "tools"},
      {{{"tools", {{{"type", "function"}, {"function", {{"name", "a b"}}}}}}}, "tools"},
      {{{"tools", {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", 5}}}}}}}, "tools"},
      {{{"tools", {{{"type", "function"}, {"function", {{"name", "f"}, {"other", 5}}}}}}}, "tools"},
      {{{"tools", {tool, tool}}}, "tools"},
      {{{"tool_choice", "always"}}, "tool_choice"},
      {{{"tool_choice", {{"type", "function"}, {"function", {{"name", "g"}}}}}}, "tool_choice"},
      {{{"parallel_tool_calls", 1}}, "parallel_tool_calls"},
      {{{"tool_choice", "required"}, {"response_format", {{"type", "json_object"}}}}, "response_format"}};
  for (const auto& [more, param] : kBad) expect_refusal(parse_chat_request, with(more), param, param);
  const auto called = [&](const Json& calls) {
    return Json{{"messages", {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"tool_calls", calls}}}}}
        .dump();
  };
  EXPECT_NO_THROW(parse_chat_request(called({{{"id", "x"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}}})));
  for (const Json& calls : {Json("f"), Json{1}, Json{{{"id", "x"}}}, Json{{{"function", {{"name", "f"}}}}},
                            Json{{{"function", {{"name", "f"}, {"arguments", 5}}}}}})
    expect_refusal(parse_chat_request, called(calls), "messages[1].tool_calls", "'messages[1].tool_calls'");
}

TEST(ApiRequest, RefusesValuesThatCannotBe) {
  for (const std::string body : {"", "{", "nonsense", "{\"a\": \xff}", "{}{}"})
    expect_refusal(parse_chat_request, body, "", "the body is not usable JSON: not valid JSON at column ");
  for (const std::string body : {"[1]", "\"a\"", "null"})
    expect_refusal(parse_chat_request, body, "", "the body is not a JSON object");
  expect_refusal(parse_chat_request, R"({"messages": [], "n": 1, "n": 2})", "", "duplicate key \"n\"");
  const std::string deep(200'000, '[');
  expect_refusal(parse_chat_request, R"({"messages": [{"role": "user", "content": "x", "k": )" + deep, "",
                 "nests deeper than 64 levels");
  expect_refusal(parse_chat_request,
                 R"({"messages": [{"role": "user", "content": "x"}], "seed": 123456789012345678901})", "seed",
                 "'seed' is 123456789012345678901; expected a whole number");
  expect_refusal(parse_chat_request, "{}", "messages", "missing");
  expect_refusal(parse_completion_request, "{}", "prompt", "missing");
  const std::tuple<Json, const char*, const char*> kBad[] = {
      {{{"temperature", 3}}, "temperature", "0 to 2"},
      {{{"temperature", "hot"}}, "temperature", "'temperature' is \"hot\"; expected a number from 0 to 2"},
      {{{"temperature", std::string(5000, 'x')}}, "temperature", "is a long string; expected"},
      {{{"top_p", -1}}, "top_p", "'top_p' is -1; expected a number more than 0 and at most 1"},
      {{{"top_p", 0}}, "top_p", "more than 0"},
      {{{"top_k", -1}}, "top_k", "0 or more"},
      {{{"max_tokens", 0}}, "max_tokens", "1 or more"},
      {{{"max_tokens", 1.5}}, "max_tokens", "whole number"},
      {{{"max_tokens", 9223372036854775808u}}, "max_tokens", "at most 9223372036854775807"},
      {{{"max_tokens", 1e30}}, "max_tokens", "at most 9223372036854775807"},
      {{{"max_tokens", 5}, {"max_completion_tokens", 6}}, "max_tokens", "differ"},
      {{{"n", 0}}, "n", "1 or more"},
      {{{"n", 129}}, "n", "at most 128"},
      {{{"seed", 18446744073709551615u}}, "seed", "whole number"},
      {{{"stop", ""}}, "stop", "empty"},
      {{{"stop", 5}}, "stop", "'stop' is 5; expected a string"},
      {{{"stop", {"a", 5}}}, "stop", "'stop' has 5; expected a string"},
      {{{"stop", {"a", "b", "c", "d", "e"}}}, "stop", "at most 4"},
      {{{"stream", "yes"}}, "stream", "true or false"},
      {{{"stream_options", {{"include_usage", true}}}}, "stream_options", "'stream': true"},
      {{{"model", 5}}, "model", "a string"},
      {{{"user", 5}}, "user", "'user' is 5; expected a string"},
      {{{"safety_identifier", 3}}, "safety_identifier", "expected a string"},
      {{{"prompt_cache_key", Json::object()}},
       "prompt_cache_key",
       "'prompt_cache_key' is an object; expected a string"},
      {{{"metadata", "x"}}, "metadata", "'metadata' is \"x\"; expected an object of strings"},
      {{{"metadata", {{"a", 1}}}}, "metadata", "'metadata' has 1 in it; expected an object of strings"},
      {{{"messages", Json::array()}}, "messages", "'messages' is an empty list; expected a list of messages"},
      {{{"messages", "hi"}}, "messages", "'messages' is \"hi\"; expected a list of messages"},
      {{{"messages", {"a"}}}, "messages[0]", "not an object"},
      {{{"messages", {{{"role", "judge"}, {"content", "a"}}}}}, "messages[0].role", "expected system"},
      {{{"messages", {{{"role", "user"}}}}}, "messages[0].content", "no content"},
      {{{"messages", {{{"role", "user"}, {"content", 5}}}}}, "messages[0].content", "list of text parts"},
      {{{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}},
       "messages[0].content",
       "only text"}};
  for (const auto& [more, param, part] : kBad) expect_refusal(parse_chat_request, chat(more).dump(), param, part);
  for (const Json& prompt :
       {Json::array(), Json(5), Json::array({1, "a"}), Json::array({Json::array()}), Json::object()})
    expect_refusal(parse_completion_request, completion({{"prompt", prompt}}).dump(), "prompt", "'prompt'");
  expect_refusal(parse_completion_request, completion({{"prompt", {-1}}}).dump(), "prompt", "token id -1");
  expect_refusal(parse_completion_request, completion({{"prompt", {"a", "b"}}, {"n", 65}}).dump(), "n", "130");
}

// If parsing took time quadratic in the fields, one request would block all others.
TEST(ApiRequest, AMessageHasAtMost64Fields) {
  const auto with_fields = [](size_t count) {
    Json message = {{"role", "user"}, {"content", "a"}};
    std::string text = message.dump();
    text.pop_back();
    for (size_t i = 2; i < count; ++i) text += ",\"k" + std::to_string(i) + "\":1";
    return R"({"messages": [)" + text + "}]}";
  };
  EXPECT_EQ(parse_chat_request(with_fields(64)).messages.at(0).size(), 64u);
  expect_refusal(parse_chat_request, with_fields(65), "messages[0]",
                 "'messages[0]' has 65 fields; expected at most 64");
  expect_refusal(parse_chat_request, with_fields(150'000), "messages[0]", "has 150000 fields");
}

TEST(ApiRequest, ABodyHasAtMost128Parameters) {
  const auto with_parameters = [](size_t count) {
    std::string text = R"({"messages": [])";
    for (size_t i = 1; i < count; ++i) text += ",\"k" + std::to_string(i) + "\":1";
    return text + "}";
  };
  expect_refusal(parse_chat_request, with_parameters(128), "messages", "an empty list");
  expect_refusal(parse_chat_request, with_parameters(129), "", "129 parameters; expected at most 128");
  expect_refusal(parse_completion_request, with_parameters(150'000), "", "150000 parameters");
}

}  // namespace
}  // namespace megatrain
