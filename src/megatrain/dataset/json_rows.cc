#include "megatrain/dataset/json_rows.h"

#include <iterator>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/dataset/sample_json.h"
#include "megatrain/io/file.h"

namespace megatrain {
namespace {

constexpr BlockLimits kLimits = {.block_bytes = 4 * kMiB, .sample_bytes = kMaxSampleBytes};

}  // namespace

JsonRows::JsonRows(const std::string& path)
    : path_(path), blocks_({{.path = path, .json = true, .kind = kind_of_file(path)}}, kLimits) {
  refuse_unread(path);
}

std::optional<JsonRow> JsonRows::next() {
  while (next_ == block_.samples.size()) {
    next_ = 0;
    if (blocks_.next(block_)) continue;
    if (!any_) fail_input(fmt::format("{} has no rows; expected JSON objects, one per line or in an array", path_));
    return std::nullopt;
  }
  const RawSample& raw = block_.samples[next_++];
  any_ = true;
  JsonRow row{.where = fmt::format("{}:{}: ", path_, raw.line), .line = raw.line};
  try {
    row.object = parse_sample_json(block_.good_text(raw));
  } catch (const Error& error) {
    fail(error.code(), fmt::format("{}{}.", row.where, error.what()));
  }
  if (!row.object.is_object()) {
    fail_input(fmt::format("{}expected an object, but the row is {}.", row.where, kind_of(row.object)));
  }
  for (auto field = row.object.begin(); field != row.object.end();)
    field = field->is_null() ? row.object.erase(field) : std::next(field);
  return row;
}

std::string text_field(const JsonRow& row, const char* name) {
  const auto field = row.object.find(name);
  if (field == row.object.end()) {
    fail_input(fmt::format("{}it has no \"{}\", found {}", row.where, name, printable(row.object.dump())));
  }
  if (!field->is_string()) {
    fail_input(fmt::format("{}\"{}\" is {}; expected text", row.where, name, kind_of(*field)));
  }
  return field->get<std::string>();
}

nlohmann::ordered_json messages_field(const JsonRow& row) {
  const auto field = row.object.find("messages");
  if (field == row.object.end() || !field->is_array() || field->empty()) {
    fail_input(fmt::format(
        "{}\"messages\" is not a list of messages; expected [{{\"role\": ..., \"content\": ...}}, ...]", row.where));
  }
  for (size_t i = 0; i < field->size(); ++i) {
    const nlohmann::ordered_json& message = field->at(i);
    if (!message.is_object() || !message.contains("role") || !message.at("role").is_string()) {
      fail_input(fmt::format("{}message {} is {}; expected an object with \"role\" and \"content\"", row.where, i + 1,
                             printable(message.dump())));
    }
  }
  return *field;
}

}  // namespace megatrain
