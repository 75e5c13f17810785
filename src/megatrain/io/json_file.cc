#include "megatrain/io/json_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"

namespace megatrain {
namespace {

constexpr size_t kMaxDepth = 64;
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
  size_t begin = what.find("syntax error");
  if (begin == std::string::npos) begin = std::min(what.find("] ") + 2, what.size());  // behind the library's own mark
  const std::string text = what.substr(begin);
  return text.substr(0, text.find("; last read"));
}

// Builds the value from the parser's events. The library's own builder with a callback looks through all members of an
// object whenever one of them ends, so that its time grows with their square.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const std::string& where, const std::string& advice)
      : text_(text), where_(where), advice_(advice) {}

  Json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const auto [member, fresh] = open_.back()->get_ref<Json::object_t&>().try_emplace(std::move(name), nullptr);
    if (!fresh) {
      fail_input(fmt::format("{} has the key {} twice in one object, where each may stand once; {}.", where_,
                             printable(member->first), advice_));
    }
    member_ = &member->second;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    if (const auto* const syntax = dynamic_cast<const Json::parse_error*>(&error)) {
      fail_input(fmt::format("{} is not valid JSON at {}: {}; {}.", where_,
                             place(text_, syntax->byte == 0 ? 0 : syntax->byte - 1), reason(error.what()), advice_));
    }
    fail_input(fmt::format("{} is not usable JSON: {}; {}.", where_, error.what(), advice_));
  }

 private:
  // Where the next value goes. What is open is the last of its parent, so places of open ones do not move.
  Json* place_next(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_object()) {
      *member_ = std::move(value);
      return member_;
    }
    auto& items = open_.back()->get_ref<Json::array_t&>();
    items.push_back(std::move(value));
    return &items.back();
  }

  bool put(Json value) {
    place_next(std::move(value));
    return true;
  }

  bool open(Json value) {
    if (open_.size() >= kMaxDepth) {
      fail_input(fmt::format("{} nests deeper than {} levels; {}.", where_, kMaxDepth, advice_));
    }
    open_.push_back(place_next(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& where_;
  const std::string& advice_;
  Json root_;
  std::vector<Json*> open_;  // objects and arrays, the outermost first
  Json* member_ = nullptr;   // of the innermost object, the one whose key was read last
};

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& where, const std::string& advice) {
  // The parser takes a NUL for the end of its input and would leave what follows unread.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail_input(fmt::format("{} is not valid JSON at {}: it holds a NUL byte; {}.", where, place(text, nul), advice));
  }
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    fail_input(fmt::format("{} is not valid JSON: it is empty; {}.", where, advice));
  Builder builder(text, where, advice);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

nlohmann::json read_json_file(const std::string& path) {
  const std::string text = read_text_file(path, kMaxJsonBytes);
  return parse_json(text, path, "correct the file or download it again");
}

}  // namespace megatrain
