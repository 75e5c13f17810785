// OpenAI's endpoints on top of an engine: GET /v1/models and /v1/models/NAME, POST /v1/chat/completions and
// /v1/completions, complete or as server-sent events.
#pragma once

#include <string>

#include "megatrain/chat/model_text.h"
#include "megatrain/http/server.h"
#include "megatrain/serve/answer_engine.h"
#include "megatrain/serve/request_pool.h"

namespace megatrain {

// All outlive the server's run(). `name` is the model's name for clients.
struct ApiModel {
  AnswerEngine& engine;
  const ModelText& text;
  std::string name;
};

// `pool` reads the requests; it outlives the server's run(), too.
void serve_api(HttpServer& server, RequestPool& pool, const ApiModel& model);

}  // namespace megatrain
