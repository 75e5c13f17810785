#include "megatrain/io/json_file.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"

namespace megatrain {
namespace {

constexpr int kMaxDepth = 64;
constexpr int64_t kMaxJsonBytes = 256 * kMiB;

using Json = nlohmann::json;

// Byte `byte` of the text, as "line 3, column 14 (byte 57)"; all count from 1 but the byte.
std::string place(std::string_view text, size_t byte) {
  byte = std::min(byte, text.size());
  const std::string_view before = text.substr(0, byte);
  const int64_t line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = 1 + (newline == std::string_view::npos ? byte : byte - newline - 1);
  return fmt::format("line {}, column {} (byte {})", line, column, byte);
}

// The parser's reason without its own position, and without the text it read, which may hold any bytes.
std::string reason(const std::string& what) {
  const size_t begin = what.find("syntax error");
  std::string text = begin == std::string::npos ? what : what.substr(begin);
  return text.substr(0, text.find("; last read"));
}

class Guard {
 public:
  Guard(const std::string& where, const std::string& advice) : where_(where), advice_(advice) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    switch (event) {
      case Json::parse_event_t::object_start: keys_.emplace_back(); [[fallthrough]];
      case Json::parse_event_t::array_start:
        if (depth >= kMaxDepth) {
          fail_input(fmt::format("{} nests deeper than {} levels; {}.", where_, kMaxDepth, advice_));
        }
        break;
      case Json::parse_event_t::key: {
        const std::string& key = value.get_ref<const std::string&>();
        if (!keys_.back().insert(key).second) {
          fail_input(fmt::format("{} has the key {} twice in one object, where each may stand once; {}.", where_,
                                 printable(key), advice_));
        }
        break;
      }
      case Json::parse_event_t::object_end: keys_.pop_back(); break;
      default: break;
    }
    return true;
  }

 private:
  const std::string& where_;
  const std::string& advice_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& where, const std::string& advice) {
  // The parser takes a NUL for the end of its input and would leave what follows unread.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail_input(fmt::format("{} is not valid JSON at {}: it holds a NUL byte; {}.", where, place(text, nul), advice));
  }
  Guard guard(where, advice);
  try {
    return Json::parse(text.begin(), text.end(),
                       [&](int depth, Json::parse_event_t event, Json& value) { return guard(depth, event, value); });
  } catch (const Json::parse_error& error) {
    fail_input(fmt::format("{} is not valid JSON at {}: {}; {}.", where,
                           place(text, error.byte == 0 ? 0 : error.byte - 1), reason(error.what()), advice));
  } catch (const Json::exception& error) {
    fail_input(fmt::format("{} is not usable JSON: {}; {}.", where, error.what(), advice));
  }
}

nlohmann::json read_json_file(const std::string& path) {
  const std::string text = read_text_file(path, kMaxJsonBytes);
  return parse_json(text, path, "correct the file or download it again");
}

}  // namespace megatrain
