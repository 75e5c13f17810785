// `megatrain serve` for tests: the program on its own port, and requests to it.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/http_client.h"
#include "tests/support/speaking_model.h"

namespace megatrain::cli {

// The program, serving a model on its own port while this lives.
class Served {
 public:
  explicit Served(const SpeakingModel& model, const Words& more = {})
      : process_(model.words(with_port(more), "serve")) {
    EXPECT_TRUE(eventually([&] { return process_.ended() || !port_text().empty(); }));
    port_ = std::atoi(port_text().c_str());
    EXPECT_GT(port_, 0) << process_.said();
  }
  ~Served() {
    if (!waited_) end();
  }

  Outcome end(int signal = SIGTERM) {
    waited_ = true;
    process_.signal(signal);
    return process_.wait();
  }
  int port() const { return port_; }
  std::string said() const { return process_.said(); }
  bool ended() const { return process_.ended(); }

  ClientReply post(const std::string& path, const json& body) const { return ask(port_, "POST", path, body.dump()); }
  json chat(const json& body) const { return good(post("/v1/chat/completions", body)); }
  json complete(const json& body) const { return good(post("/v1/completions", body)); }

  // The events of a stream; the last is "[DONE]".
  std::vector<std::string> stream(const std::string& path, json body) const {
    body["stream"] = true;
    const ClientReply reply = post(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    std::vector<std::string> events;
    std::istringstream lines(reply.body);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("data: ")) events.push_back(line.substr(6));
    }
    EXPECT_FALSE(events.empty());
    return events;
  }

 private:
  static Words with_port(Words more) {
    more.insert(more.end(), {"--port=0", "--json"});
    return more;
  }
  static json good(const ClientReply& reply) {
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }
  std::string port_text() const {
    const std::string text = process_.said();
    const size_t at = text.find(" at http://"), end = text.find("/v1: ", at);
    if (at == std::string::npos || end == std::string::npos) return "";
    return text.substr(text.rfind(':', end) + 1);
  }

  Process process_;
  int port_ = 0;
  bool waited_ = false;
};

inline json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

inline json asked(const std::string& text, const json& more = json::object()) {
  json body = {{"messages", json::array({user(text)})}, {"max_tokens", 20}, {"temperature", 0}};
  body.update(more);
  return body;
}

inline std::string content(const json& reply) { return reply.at("choices").at(0).at("message").at("content"); }

// The text that the deltas of one choice add up to.
inline std::string streamed_text(const std::vector<std::string>& events, size_t choice = 0) {
  std::string text;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const json chunk = json::parse(event);
    for (const json& part : chunk.at("choices")) {
      if (part.at("index") != choice) continue;
      text += part.contains("delta") ? part.at("delta").value("content", "") : part.at("text").get<std::string>();
    }
  }
  return text;
}

// A model whose answers take minutes to end.
inline const SpeakingModel& endless() {
  static const SpeakingModel model;
  static const bool made = (model.make_endless(), true);
  static_cast<void>(made);
  return model;
}

}  // namespace megatrain::cli
