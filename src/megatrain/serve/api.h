// OpenAI's endpoints on top of an engine: GET /v1/models and /v1/models/NAME, POST /v1/chat/completions and
// /v1/completions, complete or as server-sent events. Beside them /health, /metrics, and a page to chat with at /.
#pragma once

#include <string>
#include <vector>

#include "megatrain/chat/model_text.h"
#include "megatrain/http/server.h"
#include "megatrain/serve/answer_engine.h"
#include "megatrain/serve/api_keys.h"
#include "megatrain/serve/request_pool.h"

namespace megatrain {

// A model that clients may ask for: the base, or an adapter over it.
struct ApiModel {
  std::string name;  // for clients
  const ModelText& text;
  size_t adapter = 0;  // GenerationRequest::adapter
};

// The engine and the texts outlive the server's run(). The first model is the base.
struct ApiModels {
  AnswerEngine& engine;
  std::vector<ApiModel> list;
};

struct ApiOptions {
  ApiKeys keys;
  double most_wait_s = 600;  // in the queue; OpenAI's clients wait as long
};

// `pool` reads the requests; it outlives the server's run(), too.
void serve_api(HttpServer& server, RequestPool& pool, const ApiModels& models, const ApiOptions& options = {});

}  // namespace megatrain
