// Builds JSON from the parser's events, with the checks that every reader of user files needs. The text must be UTF-8,
// at most 64 levels deep, without comments, NUL bytes, duplicate keys or anything after the value. Faults are returned
// as values, as each reader words its own messages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "megatrain/io/json.h"

namespace megatrain {

constexpr size_t kMaxJsonDepth = 64;

struct JsonFault {
  enum class Kind { malformed, unusable, nul_byte, too_deep, key_twice };  // unusable: a number too large for a double
  Kind kind;
  size_t byte = 0;     // malformed, unusable and nul_byte: where
  std::string detail;  // malformed and unusable: the parser's reason; key_twice: the key
};

// The reason from the parser's exception, without its position and without the text it read, which may hold any bytes.
std::string json_reason(const std::string& what);

// The position of a byte in the text; both count from 1.
struct TextPlace {
  int64_t line;
  size_t column;
};
TextPlace text_place(std::string_view text, size_t byte);

// Used instead of the library's own builder with a callback, which looks through all members of an object whenever one
// of them ends, so that its time is quadratic.
template <class Json>
class StrictJsonBuilder : public nlohmann::json_sax<Json> {
  using Events = nlohmann::json_sax<Json>;

 public:
  using typename Events::binary_t;
  using typename Events::number_float_t;
  using typename Events::number_integer_t;
  using typename Events::number_unsigned_t;
  using typename Events::string_t;

  Json take() { return std::move(root_); }
  const std::optional<JsonFault>& fault() const { return fault_; }

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
    member_ = add_member(frames_.back(), name);
    return member_ || refuse({.kind = JsonFault::Kind::key_twice, .detail = name});
  }

  bool parse_error(std::size_t position, const std::string&, const typename Json::exception& error) override {
    const bool syntax = dynamic_cast<const typename Json::parse_error*>(&error) != nullptr;
    return refuse({.kind = syntax ? JsonFault::Kind::malformed : JsonFault::Kind::unusable,
                   .byte = position == 0 ? 0 : position - 1,
                   .detail = json_reason(error.what())});
  }

 protected:
  bool put(Json value) {
    place_next(std::move(value));
    return true;
  }

 private:
  static constexpr size_t kFewKeys = 16;  // up to this many are compared one by one

  struct Frame {
    Json* value = nullptr;
    // The keys of an ordered object that has more than kFewKeys.
    std::unordered_set<std::string> many_keys;
  };

  bool refuse(JsonFault fault) {
    fault_ = std::move(fault);
    return false;
  }

  // nullptr if the object already has the key; `name` is then unchanged.
  static Json* add_member(Frame& frame, string_t& name) {
    auto& members = frame.value->template get_ref<typename Json::object_t&>();
    if constexpr (std::is_same_v<Json, nlohmann::json>) {
      const auto [member, fresh] = members.try_emplace(std::move(name), nullptr);
      return fresh ? &member->second : nullptr;
    } else {
      const auto has_name = [&](const auto& member) { return member.first == name; };
      if (frame.many_keys.empty() ? std::any_of(members.begin(), members.end(), has_name)
                                  : frame.many_keys.contains(name))
        return nullptr;
      if (members.size() == kFewKeys) {
        for (const auto& member : members) frame.many_keys.insert(member.first);
      }
      if (members.size() >= kFewKeys) frame.many_keys.insert(name);
      using Members = typename Json::object_t::Container;
      return &static_cast<Members&>(members).emplace_back(std::move(name), nullptr).second;
    }
  }

  // Where the next value goes. An open value is the last one in its parent, so addresses of open values do not change.
  Json* place_next(Json value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *frames_.back().value;
    if (parent.is_object()) {
      *member_ = std::move(value);
      return member_;
    }
    auto& items = parent.template get_ref<typename Json::array_t&>();
    items.push_back(std::move(value));
    return &items.back();
  }

  bool open(Json value) {
    if (frames_.size() >= kMaxJsonDepth) return refuse({.kind = JsonFault::Kind::too_deep});
    frames_.push_back({.value = place_next(std::move(value)), .many_keys = {}});
    return true;
  }

  bool close() {
    frames_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Frame> frames_;  // open objects and arrays, outermost first
  Json* member_ = nullptr;     // in the innermost object: the value for the key read last
  std::optional<JsonFault> fault_;
};

// The fault in the text, or nothing; without a fault the builder has the value.
template <class Json>
std::optional<JsonFault> parse_strictly(std::string_view text, StrictJsonBuilder<Json>& builder) {
  // The parser takes a NUL for the end of its input and would silently ignore the rest.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    return JsonFault{.kind = JsonFault::Kind::nul_byte, .byte = nul, .detail = ""};
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.fault();
}

}  // namespace megatrain
