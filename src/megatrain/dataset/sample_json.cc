#include "megatrain/dataset/sample_json.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/chat/jinja/json.h"
#include "megatrain/io/file.h"
#include "megatrain/io/strict_json.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

// "column 14", or "column 14 of its line 3" in a text of several lines; both count from 1.
std::string place(std::string_view text, size_t byte) {
  const TextPlace at = text_place(text, byte);
  return at.line == 1 ? fmt::format("column {}", at.column)
                      : fmt::format("column {} of its line {}", at.column, at.line);
}

// "invalid literal", without what was being parsed.
std::string short_reason(const std::string& reason) {
  constexpr std::string_view kBefore = " - ";
  const size_t at = reason.find(kBefore);
  return at == std::string::npos ? reason : reason.substr(at + kBefore.size());
}

class SampleBuilder : public StrictJsonBuilder<Json> {
 public:
  // Integers beyond 64 bits are reported as floats too; templates print all their digits.
  bool number_float(number_float_t value, const string_t& text) override {
    return put(text.find_first_of(".eE") == string_t::npos ? jinja::json_integer(text) : Json(value));
  }
};

// What is meant, where text is Python's or holds a number that JSON lacks; otherwise the parser's reason.
std::string reason(const JsonFault& fault, std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  size_t begin = std::min(fault.byte, text.size()), end = begin;
  if (begin < text.size() && text[begin] == '\'')
    return "JSON has double quotes, as Python's json.dumps writes them, and this is a single one";
  while (begin > 0 && is_letter(text[begin - 1])) --begin;
  while (end < text.size() && is_letter(text[end])) ++end;
  const std::string_view word = text.substr(begin, end - begin);
  if (word == "None" || word == "True" || word == "False")
    return fmt::format("{} is Python; JSON has null, true and false", word);
  if (word == "NaN" || word == "nan" || word == "Infinity" || word == "inf")
    return fmt::format("JSON has no {}; write null or a number", word);
  return short_reason(fault.detail);
}

std::string sentence(const JsonFault& fault, std::string_view text) {
  switch (fault.kind) {
    case JsonFault::Kind::malformed:
    case JsonFault::Kind::unusable:
      return fmt::format("not valid JSON at {}: {}; correct or remove it", place(text, fault.byte),
                         reason(fault, text));
    case JsonFault::Kind::nul_byte:
      return fmt::format("not valid JSON at {}: it contains a NUL byte; correct or remove it", place(text, fault.byte));
    case JsonFault::Kind::too_deep:
      return fmt::format("the JSON nests deeper than {} levels; make it flatter", kMaxJsonDepth);
    case JsonFault::Kind::key_twice: break;
  }
  return fmt::format("duplicate key {}; keep one of them", printable(fault.detail));
}

}  // namespace

nlohmann::ordered_json parse_sample_json(std::string_view text) {
  SampleBuilder builder;
  if (const auto fault = parse_strictly(text, builder)) fail_input(sentence(*fault, text));
  return builder.take();
}

const char* kind_of(const nlohmann::ordered_json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "a list";
    case Json::value_t::string: return "text";
    case Json::value_t::boolean: return "a boolean";
    default: return "a number";
  }
}

}  // namespace megatrain
