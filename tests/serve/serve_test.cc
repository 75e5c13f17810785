// `megatrain serve` as OpenAI's clients use it, tested with our own client.
#include <future>
#include <map>
#include <random>
#include <set>

#include "megatrain/io/json_file.h"
#include "tests/serve/served.h"

namespace megatrain::cli {

TEST(Serve, AnswersAreThoseOfGenerate) {
  const SpeakingModel model("qwen2_window");
  const Served served(model);
  const json wanted = model.generate({"--chat", "--prompt", "hello there", "--max-tokens=20"});
  const json reply = served.chat(asked("hello there", {{"model", "model"}}));
  EXPECT_EQ(content(reply), wanted.at("text").get<std::string>());
  EXPECT_EQ(reply.at("object"), "chat.completion");
  EXPECT_EQ(reply.at("model"), "model");
  EXPECT_EQ(reply.at("choices").at(0).at("finish_reason"), wanted.at("finish"));
  EXPECT_EQ(reply.at("usage").at("prompt_tokens"), wanted.at("prompt_tokens"));
  EXPECT_EQ(reply.at("usage").at("completion_tokens"), wanted.at("tokens"));
  EXPECT_EQ(reply.at("usage").at("total_tokens"),
            wanted.at("tokens").get<int>() + wanted.at("prompt_tokens").get<int>());

  const json text = model.generate({"--prompt", "one two", "--max-tokens=16"});
  const json completion = served.complete({{"prompt", "one two"}, {"temperature", 0}});  // 16 tokens by default
  EXPECT_EQ(completion.at("choices").at(0).at("text"), text.at("text"));
  EXPECT_EQ(completion.at("object"), "text_completion");

  const json drawn = model.generate(
      {"--prompt", "one two", "--max-tokens=16", "--temperature=1.2", "--top-p=0.9", "--top-k=20", "--seed=5"});
  EXPECT_EQ(served.complete({{"prompt", "one two"}, {"temperature", 1.2}, {"top_p", 0.9}, {"top_k", 20}, {"seed", 5}})
                .at("choices")
                .at(0)
                .at("text"),
            drawn.at("text"));
}

TEST(Serve, ListsItsModelAndRefusesOthers) {
  const SpeakingModel model;
  const Served served(model, {"--name=mine"});
  const json list = ask(served.port(), "GET", "/v1/models").json();
  EXPECT_EQ(list.at("data").at(0).at("id"), "mine");
  EXPECT_EQ(list.at("data").at(0).at("max_model_len"), 128);
  EXPECT_EQ(ask(served.port(), "GET", "/v1/models/mine").json().at("id"), "mine");
  EXPECT_EQ(ask(served.port(), "GET", "/v1/models/m%69ne").json().at("id"), "mine");
  for (const char* path : {"/v1/models/other", "/v1/models/", "/v1/models/%zz%", "/v1/models/mine/more"}) {
    const ClientReply reply = ask(served.port(), "GET", path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_EQ(reply.json().at("error").at("code"), "model_not_found") << path;
    EXPECT_NE(reply.body.find("this server has \\\"mine\\\""), std::string::npos) << reply.body;
  }
  const ClientReply other = served.post("/v1/chat/completions", asked("hi", {{"model", "other"}}));
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.json().at("error").at("code"), "model_not_found");
}

TEST(Serve, EightRequestsAtOnceAreAnsweredAsOneAfterAnother) {
  const SpeakingModel model;
  const Served served(model, {"--max-sequences=3"});  // so that some join while others run
  const auto request = [](int i) {
    return asked("question " + std::string(static_cast<size_t>(i) * 3, 'x'),
                 {{"temperature", i % 2 == 0 ? 0.0 : 1.1}, {"seed", i}, {"max_tokens", 10 + 5 * i}});
  };
  std::vector<json> alone;
  for (int i = 0; i < 8; ++i) alone.push_back(served.chat(request(i)).at("choices"));
  std::vector<std::future<json>> together;
  for (int i = 0; i < 8; ++i)
    together.push_back(std::async(std::launch::async, [&, i] { return served.chat(request(i)).at("choices"); }));
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(together[i].get(), alone[i]) << i;
}

TEST(Serve, AStreamHasTheTextOfTheWholeAnswerAndEndsWithDone) {
  const SpeakingModel model;
  const Served served(model);
  const std::string whole = content(served.chat(asked("tell me")));
  const std::vector<std::string> events =
      served.stream("/v1/chat/completions", asked("tell me", {{"stream_options", {{"include_usage", true}}}}));
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_GT(events.size(), 10u);
  EXPECT_EQ(json::parse(events.front()).at("choices").at(0).at("delta").at("role"), "assistant");
  EXPECT_EQ(streamed_text(events), whole);
  const json usage = json::parse(events[events.size() - 2]);
  EXPECT_TRUE(usage.at("choices").empty());
  EXPECT_EQ(usage.at("usage").at("completion_tokens"), 20);
  const json last = json::parse(events[events.size() - 3]).at("choices").at(0);
  EXPECT_EQ(last.at("finish_reason"), "length");
  EXPECT_EQ(last.at("delta"), json::object());

  const std::vector<std::string> texts =
      served.stream("/v1/completions", {{"prompt", {"one", "two"}}, {"n", 2}, {"temperature", 0}});
  EXPECT_EQ(texts.back(), "[DONE]");
  for (const size_t choice : {0, 2}) {
    EXPECT_EQ(streamed_text(texts, choice), streamed_text(texts, choice + 1));
    const json wanted = model.generate({"--prompt", choice == 0 ? "one" : "two", "--max-tokens=16"});
    EXPECT_EQ(streamed_text(texts, choice), wanted.at("text").get<std::string>());
  }
}

TEST(Serve, ChoicesOfOneRequestDiffer) {
  const SpeakingModel model;
  const Served served(model);
  const json reply = served.chat(asked("say", {{"n", 3}, {"temperature", 1.5}, {"seed", 7}}));
  ASSERT_EQ(reply.at("choices").size(), 3u);
  EXPECT_NE(reply.at("choices").at(0).at("message"), reply.at("choices").at(1).at("message"));
  EXPECT_EQ(served.chat(asked("say", {{"n", 3}, {"temperature", 1.5}, {"seed", 7}})).at("choices"),
            reply.at("choices"));
}

TEST(Serve, StopTextsAcrossTokensCutTheAnswerAndNothingOfThemIsStreamed) {
  const SpeakingModel model;  // one token per character
  const Served served(model);
  const std::string whole = content(served.chat(asked("stop it", {{"max_tokens", 30}})));
  ASSERT_GT(whole.size(), 12u);
  const std::string stop = whole.substr(8, 3), wanted = whole.substr(0, whole.find(stop));
  const json body = asked("stop it", {{"max_tokens", 30}, {"stop", {"never", stop}}});
  const json reply = served.chat(body);
  EXPECT_EQ(content(reply), wanted);
  EXPECT_EQ(reply.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(streamed_text(served.stream("/v1/chat/completions", body)), wanted);
}

TEST(Serve, CharactersOfSeveralTokensAreNeverCut) {
  const SpeakingModel model;
  json tokenizer = tiny_tokenizer();
  json vocab = json::object();
  // Upper-case letters become single bytes: the first 12 begin a two-byte character, the others continue one.
  for (const auto& [token, id] : tokenizer.at("model").at("vocab").items()) {
    const int place = token.size() == 1 && token[0] >= 'A' && token[0] <= 'X' ? token[0] - 'A' : -1;
    const int byte = place < 12 ? 0xc3 + place : 0xae + place - 12;
    const std::string letter = {static_cast<char>(0xc0 | byte >> 6), static_cast<char>(0x80 | (byte & 0x3f))};
    vocab[place < 0 ? token : letter] = id;
  }
  tokenizer["model"]["vocab"] = vocab;
  write_bytes(model.path() + "/tokenizer.json", tokenizer.dump());
  const Served served(model);
  size_t whole_characters = 0;
  for (int seed = 0; seed < 5; ++seed) {
    const json body = asked("many bytes", {{"temperature", 2}, {"seed", seed}, {"max_tokens", 80}});
    const std::string whole = content(served.chat(body));
    const std::vector<std::string> events = served.stream("/v1/chat/completions", body);  // each must be UTF-8
    EXPECT_EQ(streamed_text(events), whole);
    for (size_t i = 0; i + 1 < whole.size(); ++i) {
      const auto first = static_cast<unsigned char>(whole[i]);
      whole_characters += first >= 0xc3 && first <= 0xce;
    }
  }
  EXPECT_GT(whole_characters, 0u);
}

TEST(Serve, AClientThatGoesFreesItsPlaceBetweenTwoTokens) {
  const Served served(endless(), {"--context=200000", "--max-sequences=1"});
  for (const bool stream : {true, false}) {
    HttpClient client(served.port());
    client.send("POST", "/v1/chat/completions",
                asked("go on", {{"stream", stream}, {"max_tokens", 150000}, {"temperature", 1}}).dump());
    if (stream) {
      ClientReply head;
      std::string chunk;
      ASSERT_TRUE(client.read_head(head) && client.read_chunk(chunk) && client.read_chunk(chunk));
    }
    client.close();
    EXPECT_EQ(served.chat(asked("next")).at("choices").size(), 1u);  // waits for the only place
  }
}

TEST(Serve, OverLongPromptsAreRefusedWithTheLimit) {
  const SpeakingModel model;
  const Served served(model, {"--context=64"});
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    json body = {{"max_tokens", 1}};
    if (path[4] == 'c' && path[5] == 'h') {
      body["messages"] = json::array({user(std::string(64, 'a'))});
    } else {
      body["prompt"] = std::string(64, 'a');
    }
    const ClientReply reply = served.post(path, body);
    EXPECT_EQ(reply.status, 400);
    const json error = reply.json().at("error");
    EXPECT_EQ(error.at("code"), "context_length_exceeded");
    EXPECT_NE(error.at("message").get<std::string>().find("context of 64 tokens"), std::string::npos);
  }
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {  // refused before tokenising
    const std::string text(7'000'000, 'a');
    const ClientReply reply =
        served.post(path, path[5] == 'h' ? json{{"messages", {user(text)}}} : json{{"prompt", text}});
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json().at("error").at("code"), "context_length_exceeded");
    EXPECT_NE(reply.body.find(" bytes, but"), std::string::npos) << reply.body;
  }
  const json full = served.complete({{"prompt", std::string(60, 'a')}, {"max_tokens", 100}, {"temperature", 0}});
  EXPECT_LE(full.at("usage").at("total_tokens"), 64);
  const ClientReply ids = served.post("/v1/completions", {{"prompt", {1, 64}}, {"max_tokens", 1}});
  EXPECT_EQ(ids.status, 400);
  EXPECT_NE(ids.body.find("token id 64; expected 0 to 63"), std::string::npos) << ids.body;
}

TEST(Serve, RefusalsAreInOpenAIsForm) {
  const SpeakingModel model("llama_linear", false);  // no chat template
  const Served served(model);
  const auto refusal = [&](const ClientReply& reply, int status, const std::string& part) {
    EXPECT_EQ(reply.status, status) << reply.body;
    EXPECT_EQ(reply.json().at("error").at("type"), "invalid_request_error");
    EXPECT_NE(reply.body.find(part), std::string::npos) << reply.body;
  };
  refusal(ask(served.port(), "POST", "/v1/completions", "{\"prompt\": "), 400, "not usable JSON");
  refusal(served.post("/v1/completions", {{"prompt", "a"}, {"best_of", 2}}), 400, "'best_of' is not supported");
  refusal(served.post("/v1/completions", {{"prompt", ""}}), 400, "no tokens");
  refusal(served.post("/v1/chat/completions", asked("hi")), 400, "no chat template");
  refusal(ask(served.port(), "GET", "/v1/completions"), 405, "takes POST");
  refusal(ask(served.port(), "POST", "/v1/models"), 405, "takes GET");
  refusal(ask(served.port(), "POST", "/v1/embeddings", "{}"), 404, "/v1/embeddings");
  for (const std::string path : {"/index.html", "/etc/passwd", "/v1/../../etc/passwd", "/v1/models/../config.json",
                                 "/config.json", "/v1/models/%2e%2e%2fconfig.json", "/v1/models/model/config.json"}) {
    refusal(ask(served.port(), "GET", path), 404, "no such ");
  }
}

TEST(Serve, TenThousandMalformedRequestsDoNotHarmIt) {
  const SpeakingModel model;
  const Served served(model);
  const json before = served.chat(asked("still there")).at("choices");
  std::mt19937 random(1);
  const std::string body =
      asked("abc", {{"stop", "x"}, {"n", 1}, {"max_tokens", 1}, {"stream_options", nullptr}, {"tools", json::array()}})
          .dump();
  const std::string request = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ";
  auto client = std::make_unique<HttpClient>(served.port());
  std::map<int, int> statuses;
  for (int i = 0; i < 10000; ++i) {
    std::string bad = body;
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0: bad[at] = static_cast<char>(random()); break;
        case 1: bad.erase(at, random() % 9); break;
        case 2: bad.insert(at, body.substr(random() % body.size(), random() % 9)); break;
        default: bad.insert(at, std::string(1 + random() % 50, "[{\"\\"[random() % 4])); break;
      }
      if (bad.empty()) bad = " ";
    }
    std::string bytes = request + std::to_string(bad.size()) + "\r\n\r\n" + bad;
    const bool torn = i % 50 == 0;  // malformed HTTP
    if (torn) bytes[random() % request.size()] = static_cast<char>(random());
    if (torn) bytes += "\r\n\r\n";
    client->send_bytes(bytes);
    int status = 0;
    if (!torn) status = client->read().status;
    ++statuses[status];
    if (torn || status == 0) client = std::make_unique<HttpClient>(served.port());
  }
  EXPECT_GT(statuses[400], 7000);
  for (const auto& [status, count] : statuses) EXPECT_TRUE(status < 500) << status << " " << count;
  EXPECT_FALSE(served.ended());
  EXPECT_EQ(served.chat(asked("still there")).at("choices"), before);
}

TEST(Serve, ListensOnLoopbackUnlessTold) {
  const SpeakingModel model;
  const auto listens = [](const Served& served, const std::string& address) {
    const std::string sockets = read_bytes("/proc/net/tcp");
    return sockets.find(fmt::format("{}:{:04X} 00000000:0000 0A", address, served.port())) != std::string::npos;
  };
  {
    const Served served(model);
    EXPECT_TRUE(listens(served, "0100007F"));
    EXPECT_FALSE(listens(served, "00000000"));
    EXPECT_EQ(served.said().find("password"), std::string::npos);
    EXPECT_EQ(ask(served.port(), "GET", "/v1/models", "", "Host: evil.example\r\n").status, 403);
  }
  const Served open(model, {"--host=0.0.0.0"});
  EXPECT_TRUE(listens(open, "00000000"));
  EXPECT_NE(open.said().find("there is no password"), std::string::npos);
}

TEST(Serve, PrintsItsAddressAndASignalEndsItInOrder) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Served served(endless(), {"--context=200000", "--max-sequences=1"});
    HttpClient client(served.port());
    client.send("POST", "/v1/chat/completions", asked("go on", {{"stream", true}, {"max_tokens", 150000}}).dump());
    ClientReply head;
    ASSERT_TRUE(client.read_head(head));
    const Outcome outcome = served.end(signal);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const json started = json::parse(outcome.out);
    EXPECT_EQ(started.at("url"), "http://127.0.0.1:" + std::to_string(served.port()) + "/v1");
    EXPECT_EQ(started.at("context"), 200000);
    EXPECT_TRUE(client.closed());
  }
}

TEST(Serve, RefusesWhatItCannotDo) {
  const SpeakingModel model;
  expect_refusal(model.words({"--port=70000"}, "serve"), ExitCode::bad_config, {"--port is 70000", "65535"});
  expect_refusal(model.words({"--max-sequences=0"}, "serve"), ExitCode::bad_config,
                 {"--max-sequences is 0", "1 to 256"});
  expect_refusal(model.words({"--context=129"}, "serve"), ExitCode::bad_config, {"--context is 129", "2 to 128"});
  expect_refusal(model.words({"--host=no such host"}, "serve"), ExitCode::bad_config, {"--host no such host"});
  expect_refusal(model.words({"--host=192.0.2.1"}, "serve"), ExitCode::io, {"does not have this address", "0.0.0.0"});
  const Served served(model);
  expect_refusal(model.words({"--port=" + std::to_string(served.port())}, "serve"), ExitCode::io,
                 {"Address already in use", "another port"});
}

namespace {

// A base with two adapters, `weak` and `strong`.
class Adapted {
 public:
  Adapted() : base_("llama_bias") {
    for (const auto& [name, alpha] : {std::pair{"weak", 8.0}, {"strong", 60.0}}) {
      const std::string directory = base_ / name;
      fs::copy(in_repository("tests/parity/adapter_goldens/llama_bias/adapter"), directory);
      json config = read_json_file(directory + "/adapter_config.json");
      config["base_model_name_or_path"] = base_.path();
      config["lora_alpha"] = alpha;
      write_bytes(directory + "/adapter_config.json", config.dump());
    }
  }
  const SpeakingModel& base() const { return base_; }
  Words options() const { return {"--adapter=weak=" + (base_ / "weak"), "--adapter=strong=" + (base_ / "strong")}; }
  // What `generate` alone answers; an empty name is the base.
  std::string alone(const std::string& name, const std::string& text) const {
    const std::string model = name.empty() ? base_.path() : base_ / name;
    return json::parse(succeed({"generate", model, "--chat", "--prompt", text, "--max-tokens=20", "--device=cpu",
                                "--threads=1", "--json"})
                           .out)
        .at("text");
  }

 private:
  SpeakingModel base_;
};

}  // namespace

TEST(ServeAdapters, EachRequestGetsTheAnswerOfTheModelThatItNames) {
  const Adapted adapted;
  std::map<std::string, std::string> wanted;  // by name, then text
  const std::vector<std::string> names = {"model", "weak", "strong"};
  for (const std::string& name : names)
    for (const char* text : {"hello there", "one two"})
      wanted[name + text] = adapted.alone(name == "model" ? "" : name, text);
  EXPECT_EQ(std::set<std::string>({wanted["modelhello there"], wanted["weakhello there"], wanted["stronghello there"]})
                .size(),
            3u);
  const Served served(adapted.base(), adapted.options());
  std::vector<std::future<std::pair<std::string, json>>> replies;  // all in one batch
  for (int round = 0; round < 2; ++round) {
    for (const std::string& name : names) {
      for (const char* text : {"hello there", "one two"})
        replies.push_back(std::async(std::launch::async, [&served, name, text] {
          return std::pair{name + text, served.chat(asked(text, {{"model", name}}))};
        }));
    }
  }
  for (auto& future : replies) {
    const auto [key, reply] = future.get();
    EXPECT_EQ(content(reply), wanted.at(key)) << key;
    EXPECT_TRUE(key.starts_with(reply.at("model").get<std::string>())) << reply;
  }
  EXPECT_EQ(content(served.chat(asked("one two"))), wanted.at("modelone two"));  // no name is the base
}

TEST(ServeAdapters, AreListedAndOthersAreNotThere) {
  const Adapted adapted;
  const Served served(adapted.base(), adapted.options());
  const json list = ask(served.port(), "GET", "/v1/models").json().at("data");
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list.at(0).at("id"), "model");
  EXPECT_FALSE(list.at(0).contains("parent"));
  EXPECT_EQ(list.at(2).at("id"), "strong");
  EXPECT_EQ(list.at(2).at("parent"), "model");
  EXPECT_EQ(ask(served.port(), "GET", "/v1/models/weak").json().at("id"), "weak");
  const ClientReply other = served.post("/v1/chat/completions", asked("hello", {{"model", "other"}}));
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.json().at("error").at("code"), "model_not_found");
  EXPECT_NE(other.json().at("error").at("message").get<std::string>().find("\"model\", \"weak\", \"strong\""),
            std::string::npos);
}

TEST(ServeAdapters, WhatIsGivenWronglyIsRefused) {
  const Adapted adapted;
  const std::string base = adapted.base().path(), weak = adapted.base() / "weak";
  const auto refused = [&](const std::string& model, const Words& more, ExitCode code, const std::string& part) {
    Words words = {"serve", model, "--device=cpu", "--port=0"};
    words.insert(words.end(), more.begin(), more.end());
    expect_refusal(words, code, {part});
  };
  refused(base, {"--adapter", weak}, ExitCode::bad_config, "NAME=DIR");
  refused(base, {"--adapter", "=" + weak}, ExitCode::bad_config, "NAME=DIR");
  refused(base, {"--adapter=a=" + weak, "--adapter=a=" + weak}, ExitCode::bad_config, "two models are called a");
  refused(base, {"--adapter=model=" + weak}, ExitCode::bad_config, "two models are called model");
  refused(base, {"--adapter=a=" + base}, ExitCode::bad_input, "is no adapter");
  refused(weak, {"--adapter=a=" + weak}, ExitCode::bad_config, "is an adapter itself");
  expect_refusal({"serve", base, "--device=cpu", "--port=0", "--adapter", weak, "--adapter=model=" + weak},
                 ExitCode::bad_config, {"2 adapters cannot be served", "NAME=DIR", "two models are called model"});
  json config = read_json_file(weak + "/adapter_config.json");
  config["modules_to_save"] = {"lm_head"};
  write_bytes(weak + "/adapter_config.json", config.dump());
  refused(base, {"--adapter=a=" + weak}, ExitCode::bad_input, "modules_to_save");
  config["modules_to_save"] = nullptr;
  config["bias"] = "all";
  write_bytes(weak + "/adapter_config.json", config.dump());
  refused(base, {"--adapter=a=" + weak}, ExitCode::bad_input, "biases");
  config["modules_to_save"] = {"lm_head"};
  write_bytes(weak + "/adapter_config.json", config.dump());
  const std::string other = in_repository("tests/parity/adapter_goldens/qwen3_norm/adapter");
  expect_refusal({"serve", base, "--device=cpu", "--port=0", "--adapter=a=" + weak, "--adapter=b=" + base,
                  "--adapter=strong=" + (adapted.base() / "strong"), "--adapter=c=" + other},
                 ExitCode::bad_input,
                 {"3 adapters cannot be served: (1) a: ", "modules_to_save", "and biases", "; (2) b: ", "is no adapter",
                  "; (3) c: ", "the base ask for"});
  const SpeakingModel experts("gpt_oss");
  refused(experts.path(), {"--adapter=a=" + in_repository("tests/parity/adapter_goldens/gpt_oss_experts/adapter")},
          ExitCode::bad_input, "adapters of experts");
}

}  // namespace megatrain::cli
