// A second implementation of JSON schemas, for tests: it checks values, while the grammar writes texts.
#pragma once

#include <string>

#include "megatrain/io/json.h"

namespace megatrain {

inline bool has_type(const nlohmann::json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return type == (value.is_object()    ? "object"
                  : value.is_array()   ? "array"
                  : value.is_string()  ? "string"
                  : value.is_boolean() ? "boolean"
                  : value.is_null()    ? "null"
                                       : "");
}

inline int64_t characters(const std::string& text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

inline bool is_valid(const nlohmann::json& value, const nlohmann::json& schema, const nlohmann::json& root);

inline bool is_valid_container(const nlohmann::json& value, const nlohmann::json& schema, const nlohmann::json& root) {
  if (value.is_object()) {
    for (const auto& name : schema.value("required", nlohmann::json::array()))
      if (!value.contains(name.get<std::string>())) return false;
    const nlohmann::json properties = schema.value("properties", nlohmann::json::object());
    for (const auto& [name, item] : value.items()) {
      if (properties.contains(name)) {
        if (!is_valid(item, properties.at(name), root)) return false;
      } else if (schema.contains("additionalProperties") && !is_valid(item, schema.at("additionalProperties"), root)) {
        return false;
      }
    }
  }
  if (value.is_array()) {
    const auto size = static_cast<int64_t>(value.size());
    if (size < schema.value("minItems", int64_t{0}) || size > schema.value("maxItems", INT64_MAX)) return false;
    for (const auto& item : value)
      if (schema.contains("items") && !is_valid(item, schema.at("items"), root)) return false;
  }
  if (value.is_string()) {
    const int64_t size = characters(value.get<std::string>());
    if (size < schema.value("minLength", int64_t{0}) || size > schema.value("maxLength", INT64_MAX)) return false;
  }
  return true;
}

inline bool is_valid(const nlohmann::json& value, const nlohmann::json& schema, const nlohmann::json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("$ref")) {
    const std::string path = schema.at("$ref").get<std::string>().substr(1);
    if (!is_valid(value, root.at(nlohmann::json::json_pointer(path)), root)) return false;
  }
  if (schema.contains("type")) {
    bool fits = false;
    const nlohmann::json& given = schema.at("type");
    for (const auto& type : given.is_array() ? given : nlohmann::json::array({given}))
      fits = fits || has_type(value, type.get<std::string>());
    if (!fits) return false;
  }
  if (schema.contains("const") && value != schema.at("const")) return false;
  if (schema.contains("enum")) {
    bool found = false;
    for (const auto& one : schema.at("enum")) found = found || one == value;
    if (!found) return false;
  }
  for (const auto& one : schema.value("allOf", nlohmann::json::array()))
    if (!is_valid(value, one, root)) return false;
  if (schema.contains("anyOf")) {
    bool found = false;
    for (const auto& one : schema.at("anyOf")) found = found || is_valid(value, one, root);
    if (!found) return false;
  }
  return is_valid_container(value, schema, root);
}

}  // namespace megatrain
