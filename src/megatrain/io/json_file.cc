#include "megatrain/io/json_file.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"
#include "megatrain/io/strict_json.h"

namespace megatrain {
namespace {

// "line 3, column 14 (byte 57)". Lines and columns count from 1, bytes from 0.
std::string place(std::string_view text, size_t byte) {
  byte = std::min(byte, text.size());
  const TextPlace at = text_place(text, byte);
  return fmt::format("line {}, column {} (byte {})", at.line, at.column, byte);
}

std::string sentence(const JsonFault& fault, std::string_view text) {
  switch (fault.kind) {
    case JsonFault::Kind::malformed:
      return fmt::format("is not valid JSON at {}: {}", place(text, fault.byte), fault.detail);
    case JsonFault::Kind::unusable: return fmt::format("is not usable JSON: {}", fault.detail);
    case JsonFault::Kind::nul_byte:
      return fmt::format("is not valid JSON at {}: it contains a NUL byte", place(text, fault.byte));
    case JsonFault::Kind::too_deep: return fmt::format("nests deeper than {} levels", kMaxJsonDepth);
    case JsonFault::Kind::key_twice: break;
  }
  return fmt::format("has the duplicate key {} in one object", printable(fault.detail));
}

// The text with each Infinity, -Infinity and NaN outside of texts replaced by {"__float__": "Infinity"} and so on.
std::string with_floats_named(std::string_view text) {
  std::string named;
  bool quoted = false;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    std::string_view word;
    for (const std::string_view known : {"-Infinity", "Infinity", "NaN"}) {
      if (!quoted && word.empty() && rest.starts_with(known)) word = known;
    }
    if (!word.empty()) {
      named += fmt::format("{{\"__float__\": \"{}\"}}", word);
      at += word.size();
      continue;
    }
    const size_t count = quoted && rest.starts_with('\\') ? std::min<size_t>(2, rest.size()) : 1;
    if (rest.front() == '"') quoted = !quoted;
    named += rest.substr(0, count);
    at += count;
  }
  return named;
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& where, const std::string& advice) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    fail_input(fmt::format("{} is not valid JSON: it is empty; {}.", where, advice));
  StrictJsonBuilder<nlohmann::json> builder;
  const auto fault = parse_strictly(text, builder);
  if (!fault) return builder.take();
  StrictJsonBuilder<nlohmann::json> of_named;
  if (parse_strictly(with_floats_named(text), of_named))
    fail_input(fmt::format("{} {}; {}.", where, sentence(*fault, text), advice));
  return of_named.take();
}

nlohmann::json read_json_file(const std::string& path) {
  const std::string text = read_text_file(path, kMaxJsonFileBytes);
  return parse_json(text, path, "correct the file or download it again");
}

}  // namespace megatrain
