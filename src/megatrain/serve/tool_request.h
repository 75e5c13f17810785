// What a chat request says about tools: `tools`, `tool_choice`, `parallel_tool_calls`, and calls in its history.
#pragma once

#include <string>

#include "megatrain/io/json.h"
#include "megatrain/serve/api_request.h"

namespace megatrain {

// null: not given. Throws ApiError.
void read_tools(const nlohmann::ordered_json& tools, const nlohmann::ordered_json& choice,
                const nlohmann::ordered_json& parallel, ApiRequest& request);

// Calls of an earlier answer: each has a name, and arguments as the text of an object or as the object. Throws
// ApiError.
void check_tool_calls(const nlohmann::ordered_json& calls, const std::string& where);

}  // namespace megatrain
