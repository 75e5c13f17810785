#include "megatrain/cli/jsonl.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"

namespace megatrain {

std::vector<JsonLine> read_json_lines(const std::string& path) {
  constexpr int64_t kMostBytes = 4 * kGiB;
  const std::string text = read_text_file(path, kMostBytes);
  std::vector<JsonLine> lines;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}, line {}", path, number);
    parse_json(line, where, "correct the line");  // says what is wrong, duplicate keys included
    lines.push_back({where, number, nlohmann::ordered_json::parse(line)});
    if (!lines.back().row.is_object())
      fail_input(fmt::format("{}: expected an object, {{...}}, found {}", where, printable(line)));
  }
  if (lines.empty()) fail_input(fmt::format("{} has no lines; expected one JSON object a line", path));
  return lines;
}

std::string text_field(const JsonLine& line, const char* name) {
  const auto field = line.row.find(name);
  if (field == line.row.end())
    fail_input(fmt::format("{}: has no \"{}\", found {}", line.where, name, printable(line.row.dump())));
  if (!field->is_string())
    fail_input(fmt::format("{}: \"{}\" is {}; expected a string", line.where, name, printable(field->dump())));
  return field->get<std::string>();
}

nlohmann::ordered_json messages_field(const JsonLine& line) {
  const auto field = line.row.find("messages");
  if (field == line.row.end() || !field->is_array() || field->empty())
    fail_input(fmt::format(
        "{}: \"messages\" is no list of messages; expected [{{\"role\": ..., \"content\": ...}}, ...]", line.where));
  for (size_t i = 0; i < field->size(); ++i) {
    const nlohmann::ordered_json& message = field->at(i);
    if (!message.is_object() || !message.contains("role") || !message.at("role").is_string()) {
      fail_input(fmt::format("{}: message {} is {}; expected an object with \"role\" and \"content\"", line.where,
                             i + 1, printable(message.dump())));
    }
  }
  return *field;
}

}  // namespace megatrain
