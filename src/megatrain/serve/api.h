// OpenAI's endpoints over an engine: GET /v1/models and /v1/models/NAME, POST /v1/chat/completions and /v1/completions,
// whole or as server-sent events.
#pragma once

#include <string>

#include "megatrain/chat/model_text.h"
#include "megatrain/http/server.h"
#include "megatrain/serve/answer_engine.h"
#include "megatrain/serve/request_pool.h"

namespace megatrain {

// All outlive the server's run(); `model` is the name by which clients know it.
struct ApiModel {
  AnswerEngine& engine;
  const ModelText& text;
  std::string name;
};

// Requests are read by `pool`, which outlives the server's run(), too.
void serve_api(HttpServer& server, RequestPool& pool, const ApiModel& model);

}  // namespace megatrain
