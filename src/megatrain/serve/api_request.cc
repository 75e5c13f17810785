#include "megatrain/serve/api_request.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/dataset/sample_json.h"
#include "megatrain/io/file.h"
#include "megatrain/serve/api_error.h"
#include "megatrain/serve/tool_request.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& param, const std::string& message, const std::string& code = "") {
  throw ApiError(400, message, param, code);
}

// A value as shown in an error message.
std::string shown(const Json& value) {
  constexpr size_t kMost = 40;
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return text.size() <= kMost ? printable(text) : "a long string";
  }
  if (value.is_array()) return value.empty() ? "an empty list" : "a list";
  if (value.is_object()) return "an object";
  if (value.is_binary()) {  // an integer beyond 64 bits (parse_sample_json)
    const auto& digits = value.get_binary();
    return digits.size() <= kMost ? std::string(digits.begin(), digits.end()) : "a long number";
  }
  return value.dump();
}

// Known but unsupported fields, with the values that ask for nothing.
struct NotBuilt {
  const char* name;
  const char* harmless;  // a JSON list; null is always harmless
};
constexpr NotBuilt kNotBuilt[] = {
    {"frequency_penalty", "[0]"},
    {"presence_penalty", "[0]"},
    {"logit_bias", "[{}]"},
    {"functions", "[[]]"},
    {"function_call", R"(["none"])"},
    {"modalities", R"([["text"]])"},
    {"audio", "[]"},
    {"prediction", "[]"},
    {"reasoning_effort", "[]"},
    {"verbosity", "[]"},
    {"web_search_options", "[]"},
    {"store", "[false]"},
    {"service_tier", R"(["auto", "default"])"},
    {"best_of", "[1]"},
    {"suffix", R"([""])"},
};
// The same of fields that only the other endpoint obeys.
constexpr NotBuilt kNotOfChats[] = {{"echo", "[false]"}};
constexpr NotBuilt kNotOfCompletions[] = {{"tools", "[[]]"},
                                          {"tool_choice", R"(["none"])"},
                                          {"parallel_tool_calls", "[false]"},
                                          {"response_format", R"([{"type": "text"}])"},
                                          {"top_logprobs", "[0]"}};

// Labels that a client attaches to a request for itself; they have no effect.
constexpr const char* kLabels[] = {"user", "safety_identifier", "prompt_cache_key"};

// Fields are removed from the object as they are read. What is left is unknown.
class Fields {
 public:
  explicit Fields(const std::string& body) {
    try {
      object_ = parse_sample_json(body);
    } catch (const Error& error) {
      refuse("", fmt::format("the body is not usable JSON: {}", error.what()));
    }
    if (!object_.is_object()) refuse("", "the body is not a JSON object");
    if (object_.size() > ApiRequest::kMostParameters) {  // lookup is linear
      refuse("", fmt::format("the body has {} parameters; expected at most {}", object_.size(),
                             ApiRequest::kMostParameters));
    }
  }

  // null counts as absent.
  std::optional<Json> take(const std::string& name) {
    const auto found = object_.find(name);
    if (found == object_.end()) return std::nullopt;
    Json value = std::move(*found);
    object_.erase(found);
    if (value.is_null()) return std::nullopt;
    return value;
  }
  bool has(const std::string& name) const { return object_.contains(name) && !object_.at(name).is_null(); }
  bool is_false(const std::string& name) const { return object_.contains(name) && object_.at(name) == false; }
  std::optional<std::string> text(const std::string& name) {
    const std::optional<Json> value = take(name);
    if (!value) return std::nullopt;
    if (!value->is_string()) refuse(name, fmt::format("'{}' is {}; expected a string", name, shown(*value)));
    return value->get<std::string>();
  }
  bool flag(const std::string& name) {
    const std::optional<Json> value = take(name);
    if (!value) return false;
    if (!value->is_boolean()) refuse(name, fmt::format("'{}' is {}; expected true or false", name, shown(*value)));
    return value->get<bool>();
  }
  // `range` describes the values that `fits` accepts.
  std::optional<double> number(const std::string& name, bool (*fits)(double), const char* range) {
    const std::optional<Json> value = take(name);
    if (!value) return std::nullopt;
    if (!value->is_number() || !fits(value->get<double>()))
      refuse(name, fmt::format("'{}' is {}; expected a number {}", name, shown(*value), range));
    return value->get<double>();
  }
  std::optional<int64_t> integer(const std::string& name, int64_t least) {
    const std::optional<Json> value = take(name);
    if (!value) return std::nullopt;
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const bool above =
        value->is_number_unsigned()
            ? value->get<uint64_t>() > static_cast<uint64_t>(kMost)
            : value->is_binary() || (value->is_number_float() && value->get<double>() > static_cast<double>(kMost));
    if (above || !value->is_number_integer() || value->get<int64_t>() < least) {
      refuse(name, fmt::format("'{}' is {}; expected a whole number{}{}", name, shown(*value),
                               least == std::numeric_limits<int64_t>::min() ? "" : fmt::format(", {} or more", least),
                               above ? fmt::format(", at most {}", kMost) : ""));
    }
    return value->get<int64_t>();
  }

  void refuse_not_built(const NotBuilt& parameter) {
    const std::optional<Json> value = take(parameter.name);
    if (!value) return;
    const Json harmless = Json::parse(std::string(parameter.harmless));
    if (std::find(harmless.begin(), harmless.end(), *value) != harmless.end()) return;
    refuse(parameter.name, fmt::format("'{}' is not supported by this server; leave it out", parameter.name),
           "unsupported_parameter");
  }

  void none_left() const {
    if (object_.empty()) return;
    const std::string name = printable(object_.begin().key());
    refuse(object_.begin().key(), fmt::format("unknown parameter: {}", name), "unknown_parameter");
  }

 private:
  Json object_;
};

void read_stops(Fields& fields, ApiRequest& request) {
  const std::optional<Json> stop = fields.take("stop");
  if (!stop) return;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > ApiRequest::kMostStops)
    refuse("stop", fmt::format("'stop' has {} strings; expected at most {}", list.size(), ApiRequest::kMostStops));
  for (const Json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      refuse("stop", fmt::format("'stop' {} {}; expected a string or a list of strings, not empty",
                                 stop->is_array() ? "has" : "is", shown(text)));
    request.stops.push_back(text.get<std::string>());
  }
}

void read_stream(Fields& fields, ApiRequest& request) {
  request.stream = fields.flag("stream");
  std::optional<Json> options = fields.take("stream_options");
  if (!options) return;
  if (!request.stream) refuse("stream_options", "'stream_options' needs 'stream': true");
  if (!options->is_object()) refuse("stream_options", "'stream_options' is not an object");
  for (const auto& [name, value] : options->items()) {
    if (name != "include_usage" || !(value.is_boolean() || value.is_null()))
      refuse("stream_options", "'stream_options' may only have 'include_usage', true or false");
    request.include_usage = value.is_boolean() && value.get<bool>();
  }
}

// Also a label, made of several texts.
void check_metadata(Fields& fields) {
  const std::optional<Json> metadata = fields.take("metadata");
  if (!metadata) return;
  if (!metadata->is_object())
    refuse("metadata", fmt::format("'metadata' is {}; expected an object of strings", shown(*metadata)));
  for (const auto& [name, value] : metadata->items()) {
    if (!value.is_string())
      refuse("metadata", fmt::format("'metadata' has {} in it; expected an object of strings", shown(value)));
  }
}

// Fields that both endpoints have.
void read_common(Fields& fields, ApiRequest& request) {
  request.model = fields.text("model").value_or("");
  const auto from_0_to_2 = [](double value) { return value >= 0 && value <= 2; };
  const auto above_0_to_1 = [](double value) { return value > 0 && value <= 1; };
  request.sampling.temperature = fields.number("temperature", from_0_to_2, "from 0 to 2").value_or(1);
  request.sampling.top_p = fields.number("top_p", above_0_to_1, "more than 0 and at most 1").value_or(1);
  request.sampling.top_k = fields.integer("top_k", 0).value_or(0);
  if (const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min())) {
    request.sampling.seed = static_cast<uint64_t>(*seed);
    request.seeded = true;
  }
  request.n = fields.integer("n", 1).value_or(1);
  if (request.n > ApiRequest::kMostChoices)
    refuse("n", fmt::format("'n' is {}; expected at most {}", request.n, ApiRequest::kMostChoices));
  read_stops(fields, request);
  read_stream(fields, request);
  for (const char* label : kLabels) fields.text(label);
  check_metadata(fields);
  for (const NotBuilt& parameter : kNotBuilt) fields.refuse_not_built(parameter);
}

// Joins parts of text into one text and refuses other parts. Removes null fields.
Json read_message(const Json& message, size_t number) {
  const std::string where = fmt::format("messages[{}]", number);
  if (!message.is_object()) refuse(where, fmt::format("'{}' is not an object", where));
  if (message.size() > ApiRequest::kMostFields)
    refuse(where,
           fmt::format("'{}' has {} fields; expected at most {}", where, message.size(), ApiRequest::kMostFields));
  Json read = Json::object();
  for (const auto& [name, value] : message.items()) {
    if (!value.is_null()) read[name] = value;
  }
  if (!read.contains("role") || !read["role"].is_string())
    refuse(where + ".role", fmt::format("'{}' has no role", where));
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  if (std::find(std::begin(kRoles), std::end(kRoles), read["role"].get<std::string>()) == std::end(kRoles)) {
    refuse(where + ".role", fmt::format("'{}.role' is {}; expected system, developer, user, assistant or tool", where,
                                        printable(read["role"].get<std::string>())));
  }
  if (read.contains("tool_calls")) check_tool_calls(read["tool_calls"], where + ".tool_calls");
  if (!read.contains("content")) {
    if (!read.contains("tool_calls")) refuse(where + ".content", fmt::format("'{}' has no content", where));
    return read;
  }
  if (read["content"].is_array()) {
    std::string text;
    for (const Json& part : read["content"]) {
      if (!part.is_object() || part.value("type", Json()) != "text" || !part.contains("text") ||
          !part.at("text").is_string()) {
        refuse(where + ".content",
               fmt::format("'{}.content' has a part that is not text; only text is supported", where));
      }
      text += part.at("text").get<std::string>();
    }
    read["content"] = text;
  }
  if (!read["content"].is_string())
    refuse(where + ".content", fmt::format("'{}.content' must be a string or a list of text parts", where));
  return read;
}

bool is_ids(const Json& value) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [](const Json& id) { return id.is_number_integer(); });
}

std::vector<int32_t> read_ids(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    const int64_t value = id.is_number_unsigned() && id.get<uint64_t>() > INT32_MAX ? -1 : id.get<int64_t>();
    if (value < 0 || value > INT32_MAX)
      refuse("prompt", fmt::format("'prompt' has the invalid token id {}", id.dump()));
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

void read_prompts(Fields& fields, ApiRequest& request) {
  const std::optional<Json> prompt = fields.take("prompt");
  if (!prompt) refuse("prompt", "'prompt' is missing; expected a string, a list of strings or a list of token ids");
  const Json list = prompt->is_array() && !is_ids(*prompt) ? *prompt : Json::array({*prompt});
  if (static_cast<int64_t>(list.size()) > ApiRequest::kMostChoices)
    refuse("prompt",
           fmt::format("'prompt' has {} entries; expected at most {}", list.size(), ApiRequest::kMostChoices));
  for (const Json& one : list) {
    if (one.is_string()) {
      request.prompts.emplace_back(one.get<std::string>());
    } else if (is_ids(one)) {
      request.prompts.emplace_back(read_ids(one));
    } else {
      refuse("prompt", fmt::format("'prompt' {} {}; expected a string, a list of strings or a list of token ids",
                                   prompt->is_array() ? "has" : "is", shown(one)));
    }
  }
  if (list.empty()) refuse("prompt", "'prompt' is an empty list");
  if (std::ssize(request.prompts) * request.n > ApiRequest::kMostChoices)
    refuse("n", fmt::format("'n' times the prompts is {}; expected at most {}", std::ssize(request.prompts) * request.n,
                            ApiRequest::kMostChoices));
}

void read_alternatives(Fields& fields, const char* name, ApiRequest& request) {
  request.top_logprobs = fields.integer(name, 0).value_or(0);
  if (request.top_logprobs > ApiRequest::kMostAlternatives)
    refuse(name,
           fmt::format("'{}' is {}; expected at most {}", name, request.top_logprobs, ApiRequest::kMostAlternatives));
}

void read_format(Fields& fields, ApiRequest& request) {
  const std::optional<Json> format = fields.take("response_format");
  if (!format) return;
  const std::string where = "response_format";
  const Json type = format->is_object() ? format->value("type", Json()) : Json();
  if (type != "text" && type != "json_object" && type != "json_schema")
    refuse(where, "'response_format' has to be an object with 'type': \"text\", \"json_object\" or \"json_schema\"");
  for (const auto& [name, value] : format->items())
    if (name != "type" && !(name == "json_schema" && type == "json_schema"))
      refuse(where, fmt::format("'response_format' has the unknown field {}", printable(name)));
  if (type == "json_object") request.format = ApiRequest::Format::object;
  if (type != "json_schema") return;
  const Json given = format->value("json_schema", Json());
  if (!given.is_object() || !given.contains("schema") || !given.at("schema").is_object())
    refuse(where, "'response_format.json_schema' has no 'schema', which has to be an object");
  for (const auto& [name, value] : given.items()) {  // what is not the schema changes nothing
    if (name != "schema" && name != "name" && name != "description" && name != "strict")
      refuse(where, fmt::format("'response_format.json_schema' has the unknown field {}", printable(name)));
  }
  request.format = ApiRequest::Format::schema;
  request.schema = given.at("schema");
}

void read_tool_fields(Fields& fields, ApiRequest& request) {
  const std::optional<Json> tools = fields.take("tools"), choice = fields.take("tool_choice"),
                            parallel = fields.take("parallel_tool_calls");
  read_tools(tools.value_or(Json()), choice.value_or(Json()), parallel.value_or(Json()), request);
  if (request.tool_choice == ApiRequest::ToolChoice::required && request.format != ApiRequest::Format::text)
    refuse("response_format", "'response_format' has no effect beside a 'tool_choice' that requires a call");
}

}  // namespace

ApiRequest parse_chat_request(const std::string& body) {
  Fields fields(body);
  ApiRequest request;
  read_common(fields, request);
  for (const NotBuilt& parameter : kNotOfChats) fields.refuse_not_built(parameter);
  request.logprobs = fields.flag("logprobs");
  read_alternatives(fields, "top_logprobs", request);
  if (request.top_logprobs > 0 && !request.logprobs) refuse("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  read_format(fields, request);
  read_tool_fields(fields, request);
  request.max_tokens = fields.integer("max_tokens", 1);
  if (const auto most = fields.integer("max_completion_tokens", 1)) {
    if (request.max_tokens && *request.max_tokens != *most)
      refuse("max_tokens", "'max_tokens' and 'max_completion_tokens' differ; give one");
    request.max_tokens = most;
  }
  const std::optional<Json> messages = fields.take("messages");
  if (!messages || !messages->is_array() || messages->empty())
    refuse("messages", fmt::format("'messages' is {}; expected a list of messages, [{{\"role\": \"user\", "
                                   "\"content\": \"...\"}}]",
                                   messages ? shown(*messages) : "missing"));
  request.messages = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) request.messages.push_back(read_message(messages->at(i), i));
  fields.none_left();
  return request;
}

ApiRequest parse_completion_request(const std::string& body) {
  Fields fields(body);
  ApiRequest request;
  read_common(fields, request);
  for (const NotBuilt& parameter : kNotOfCompletions) fields.refuse_not_built(parameter);
  read_prompts(fields, request);
  request.echo = fields.flag("echo");
  request.max_tokens = fields.integer("max_tokens", request.echo ? 0 : 1);
  if (fields.is_false("logprobs")) fields.take("logprobs");  // as a chat's says it
  request.logprobs = fields.has("logprobs");
  read_alternatives(fields, "logprobs", request);
  fields.none_left();
  return request;
}

}  // namespace megatrain
