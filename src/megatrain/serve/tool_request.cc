#include "megatrain/serve/tool_request.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "megatrain/io/file.h"
#include "megatrain/serve/api_error.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostNameBytes = 64;

[[noreturn]] void refuse_tools(const std::string& param, const std::string& message) {
  throw ApiError(400, message, param);
}

bool is_name(const Json& value) {
  if (!value.is_string()) return false;
  const std::string& name = value.get_ref<const std::string&>();
  return !name.empty() && name.size() <= kMostNameBytes && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

void check_tool(const Json& tool, const std::string& where) {
  if (!tool.is_object() || tool.value("type", Json()) != "function" || !tool.contains("function") ||
      !tool.at("function").is_object())
    refuse_tools("tools", fmt::format("'{}' has to be {{\"type\": \"function\", \"function\": {{…}}}}", where));
  for (const auto& [name, value] : tool.items())
    if (name != "type" && name != "function")
      refuse_tools("tools", fmt::format("'{}' has the unknown field {}", where, printable(name)));
  const Json& function = tool.at("function");
  if (!is_name(function.value("name", Json())))
    refuse_tools("tools", fmt::format("'{}.function.name' has to be 1 to {} of a-z, A-Z, 0-9, '_', '-' and '.'", where,
                                      kMostNameBytes));
  for (const auto& [name, value] : function.items()) {
    const bool fits = name == "name" || (name == "description" && value.is_string()) ||
                      (name == "parameters" && value.is_object()) || (name == "strict" && value.is_boolean()) ||
                      ((name == "description" || name == "parameters" || name == "strict") && value.is_null());
    if (!fits)
      refuse_tools("tools",
                   fmt::format("'{}.function' has an unknown field, or a wrong value in {}", where, printable(name)));
  }
}

// The tool that {"type": "function", "function": {"name": …}} names.
std::string named(const Json& choice, const std::set<std::string>& names) {
  const Json function = choice.is_object() ? choice.value("function", Json()) : Json();
  const Json name = function.is_object() ? function.value("name", Json()) : Json();
  if (!choice.is_object() || choice.value("type", Json()) != "function" || !name.is_string())
    refuse_tools("tool_choice",
                 "'tool_choice' has to be \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": "
                 "{\"name\": …}}");
  if (!names.contains(name.get<std::string>()))
    refuse_tools("tool_choice",
                 fmt::format("'tool_choice' names {}, which is not in 'tools'", printable(name.get<std::string>())));
  return name.get<std::string>();
}

}  // namespace

void read_tools(const Json& tools, const Json& choice, const Json& parallel, ApiRequest& request) {
  if (!tools.is_null() && !tools.is_array()) refuse_tools("tools", "'tools' is not a list");
  if (tools.size() > ApiRequest::kMostTools)
    refuse_tools("tools",
                 fmt::format("'tools' has {} entries; expected at most {}", tools.size(), ApiRequest::kMostTools));
  if (!parallel.is_null() && !parallel.is_boolean())
    refuse_tools("parallel_tool_calls", "'parallel_tool_calls' has to be true or false");
  if (tools.empty()) {
    if (!choice.is_null() && choice != "none") refuse_tools("tool_choice", "'tool_choice' needs 'tools'");
    if (parallel == true) refuse_tools("parallel_tool_calls", "'parallel_tool_calls' needs 'tools'");
    return;
  }
  std::set<std::string> names;
  for (size_t i = 0; i < tools.size(); ++i) {
    check_tool(tools[i], fmt::format("tools[{}]", i));
    const auto& name = tools[i]["function"]["name"].get_ref<const std::string&>();
    if (!names.insert(name).second) refuse_tools("tools", fmt::format("two 'tools' are called {}", name));
  }
  request.tools = tools;
  if (parallel.is_boolean()) request.parallel_tools = parallel.get<bool>();
  if (choice == "none") {
    request.tool_choice = ApiRequest::ToolChoice::none;
  } else if (choice == "required") {
    request.tool_choice = ApiRequest::ToolChoice::required;
  } else if (!choice.is_null() && choice != "auto") {
    request.tool_choice = ApiRequest::ToolChoice::required;
    request.named_tool = named(choice, names);
  }
}

void check_tool_calls(const Json& calls, const std::string& where) {
  if (!calls.is_array() || calls.size() > ApiRequest::kMostTools)
    refuse_tools(where, fmt::format("'{}' has to be a list of at most {} calls", where, ApiRequest::kMostTools));
  for (const Json& call : calls) {
    const Json function = call.is_object() ? call.value("function", Json()) : Json();
    const Json arguments = function.is_object() ? function.value("arguments", Json()) : Json();
    if (!function.is_object() || !is_name(function.value("name", Json())) ||
        !(arguments.is_string() || arguments.is_object()))
      refuse_tools(where,
                   fmt::format("'{}' has an entry that is not {{\"id\": …, \"type\": \"function\", \"function\": "
                               "{{\"name\": …, \"arguments\": …}}}}",
                               where));
  }
}

}  // namespace megatrain
