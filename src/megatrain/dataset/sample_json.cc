#include "megatrain/dataset/sample_json.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/chat/jinja/json.h"
#include "megatrain/io/file.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxDepth = 64;
constexpr size_t kFewKeys = 16;  // up to so many are compared one by one

// "column 14", or of a text of several lines "column 14 of its line 3"; both count from 1.
std::string place(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const int64_t line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
  return line == 1 ? fmt::format("column {}", column) : fmt::format("column {} of its line {}", column, line);
}

// The parser's reason without its own position, and without the text it read, which may hold any bytes.
std::string reason(const std::string& what) {
  for (const std::string_view begin : {" - ", "] "}) {
    const size_t at = what.find(begin);
    if (at == std::string::npos) continue;
    const std::string text = what.substr(at + begin.size());
    return text.substr(0, text.find("; last read"));
  }
  return what;
}

class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view text) : text_(text) {}

  Json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  // An integer past 64 bits comes as a float, too; templates print all its digits.
  bool number_float(number_float_t value, const string_t& text) override {
    return put(text.find_first_of(".eE") == string_t::npos ? jinja::json_integer(text) : Json(value));
  }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Frame& frame = frames_.back();
    auto& members = frame.value->get_ref<Json::object_t&>();
    const bool known = frame.many_keys.empty() ? std::any_of(members.begin(), members.end(),
                                                             [&](const auto& member) { return member.first == name; })
                                               : frame.many_keys.contains(name);
    if (known) fail_input(fmt::format("the key {} stands twice in one object; keep one of them", printable(name)));
    if (members.size() == kFewKeys) {
      for (const auto& member : members) frame.many_keys.insert(member.first);
    }
    if (members.size() >= kFewKeys) frame.many_keys.insert(name);
    using Members = Json::object_t::Container;
    static_cast<Members&>(members).emplace_back(std::move(name), nullptr);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
    fail_input(fmt::format("not valid JSON at {}: {}; correct or remove it",
                           place(text_, position == 0 ? 0 : position - 1), reason(error.what())));
  }

 private:
  struct Frame {
    Json* value = nullptr;
    std::unordered_set<std::string> many_keys;  // of an object with more than a few
  };

  // Where the next value goes. What is open is the last of its parent, so places of open ones do not move.
  Json* place_next(Json value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *frames_.back().value;
    if (parent.is_array()) {
      auto& items = parent.get_ref<Json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    Json& member = parent.get_ref<Json::object_t&>().back().second;
    member = std::move(value);
    return &member;
  }

  bool put(Json value) {
    place_next(std::move(value));
    return true;
  }

  bool open(Json value) {
    if (frames_.size() >= kMaxDepth) {
      fail_input(fmt::format("the JSON nests deeper than {} levels; make it flatter", kMaxDepth));
    }
    frames_.push_back({.value = place_next(std::move(value))});
    return true;
  }

  bool close() {
    frames_.pop_back();
    return true;
  }

  std::string_view text_;
  Json root_;
  std::vector<Frame> frames_;
};

}  // namespace

nlohmann::ordered_json parse_sample_json(std::string_view text) {
  // The parser takes a NUL for the end of its input and would leave what follows unread.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail_input(fmt::format("not valid JSON at {}: it holds a NUL byte; correct or remove it", place(text, nul)));
  }
  Builder builder(text);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

const char* kind_of(const nlohmann::ordered_json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "a list";
    case Json::value_t::string: return "text";
    case Json::value_t::boolean: return "a truth value";
    default: return "a number";
  }
}

}  // namespace megatrain
