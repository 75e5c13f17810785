// A request whose answers are being made, and its reply: whole, or as server-sent events.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/generate/answer.h"
#include "megatrain/generate/answer_text.h"
#include "megatrain/http/server.h"
#include "megatrain/serve/answer_engine.h"
#include "megatrain/serve/api_request.h"
#include "megatrain/serve/serve_metrics.h"
#include "megatrain/serve/served_text.h"
#include "megatrain/serve/token_json.h"

namespace megatrain {

// Once its answers are submitted, only the engine's thread uses it.
class ApiExchange {
 public:
  struct Asked {
    HttpReply reply;
    bool chat;
    ApiRequest request;
    const ServedText& text;  // of the model that answers
    std::string model;       // its name
    AnswerEngine::Clock::time_point arrived;
  };
  // An answer for each of `prompts`, request.n times. `metrics` outlives this.
  ApiExchange(Asked asked, const std::vector<Prompt>& prompts, ServeMetrics& metrics);

  size_t answers() const { return choices_.size(); }
  void start();  // when its first answer leaves the queue; later calls do nothing
  void add_prompt(size_t choice, const std::vector<Likelihood>& tokens);
  void add_piece(size_t choice, const AnswerEngine::Piece& piece);
  void add_answer(size_t choice, const Answer& answer);
  void fail(const Error& error);

 private:
  using Json = nlohmann::ordered_json;

  struct Choice {
    Answer answer;
    std::vector<int32_t> prompt;  // if it is echoed
    std::string echoed;
    CompletionTokens completion_tokens;
    Json chat_tokens = Json::array();
    StopText before_calls;  // passes the text before tool calls
    std::string raw = {};   // the text so far, where that decides
    size_t sent = 0;        // bytes of content that were streamed
    Json message = {}, finish = nullptr;
  };

  bool reads_calls() const;
  std::string certain_content(Choice& choice, const std::string& more) const;
  Json head(const char* object) const;
  Json usage() const;
  Json likelihoods(Choice& choice) const;
  void send_chunk(Json choices, bool with_usage = false) const;
  void send_part(size_t index, Json delta, const Json& finish);
  Json read_answer(Choice& choice) const;
  void send_rest(size_t index, const Json& message);
  void send_whole();
  void finish();

  Asked asked_;
  ServeMetrics& metrics_;
  std::string id_;
  int64_t created_ = static_cast<int64_t>(std::time(nullptr));
  int64_t prompt_tokens_ = 0, completion_tokens_ = 0;
  std::vector<Choice> choices_;
  size_t open_;  // choices without an answer
  bool started_ = false, had_token_ = false, failed_ = false;
  HttpHeaders headers_;  // X-Queue-Ms
};

uint64_t random_number();

}  // namespace megatrain
