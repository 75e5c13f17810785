// The body of a request to /v1/chat/completions or /v1/completions. Fields that would have no effect are refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "megatrain/generate/sampler.h"
#include "megatrain/io/json.h"

namespace megatrain {

struct ApiRequest {
  static constexpr int64_t kMostChoices = 128;  // for all prompts together
  static constexpr size_t kMostStops = 4;
  static constexpr size_t kMostFields = 64;  // per message; lookup is linear
  static constexpr size_t kMostParameters = 128;
  static constexpr int64_t kMostAlternatives = 20;
  static constexpr size_t kMostTools = 128;

  std::string model;                // empty: not given
  nlohmann::ordered_json messages;  // for a chat: objects with a role, content as text
  std::vector<std::variant<std::string, std::vector<int32_t>>> prompts;  // otherwise: texts or ids
  std::optional<int64_t> max_tokens;
  Sampling sampling{.temperature = 1};
  bool seeded = false;  // sampling.seed was given
  std::vector<std::string> stops;
  int64_t n = 1;  // answers per prompt
  bool stream = false, include_usage = false;

  bool logprobs = false;
  int64_t top_logprobs = 0;  // alternatives of each token
  bool echo = false;         // completions: the prompt is part of the text

  // response_format: anything, any JSON object, or what a schema describes
  enum class Format : uint8_t { text, object, schema };
  Format format = Format::text;
  nlohmann::ordered_json schema;

  nlohmann::ordered_json tools;  // null, or a list that is not empty, as templates take it
  enum class ToolChoice : uint8_t { automatic, none, required };
  ToolChoice tool_choice = ToolChoice::automatic;
  std::string named_tool;  // with `required`: this one
  bool parallel_tools = true;
};

// Throw ApiError.
ApiRequest parse_chat_request(const std::string& body);
ApiRequest parse_completion_request(const std::string& body);

}  // namespace megatrain
