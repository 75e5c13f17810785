// Text that knows where each of its bytes came from, and Python's string operations over it.
//
// A byte's origin survives every operation: trimming, slicing, splitting, replacing, changing case, joining.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/base/utf8.h"

namespace megatrain::jinja {

// An error raised by a template; the interpreter adds the line.
class Raise : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
[[noreturn]] void raise(const std::string& message);

constexpr size_t kMaxTextBytes = size_t{64} << 20;  // for one text with its runs
constexpr size_t kMaxItems = 1'000'000;             // for one list
void check_items(size_t count);                     // raises above kMaxItems

struct Origin {
  int32_t message = -1;     // the message whose data this is; -1: the template's own text
  int32_t turn = -1;        // the message whose loop iteration wrote it; -1: none
  bool role = false;        // it is the message's role
  bool generation = false;  // written inside {% generation %}
  bool operator==(const Origin&) const = default;
};

// Runs cover the bytes in order without gaps; adjacent runs differ in origin.
class Text {
 public:
  struct Run {
    size_t end;
    Origin origin;
  };

  Text() = default;
  explicit Text(std::string bytes, Origin origin = {});

  const std::string& bytes() const { return bytes_; }
  const std::vector<Run>& runs() const { return runs_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  size_t weight() const { return bytes_.size() + runs_.size() * sizeof(Run); }  // in memory
  // Beyond the end: the origin of the last byte, or the default origin if the text is empty.
  Origin origin_at(size_t byte) const;

  // Raises if the text grows beyond kMaxTextBytes.
  void append(std::string_view bytes, Origin origin = {});
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t begin, size_t end);
  Text sub(size_t begin, size_t end) const;

  // Assigns bytes that no turn wrote yet to this turn.
  void stamp_turn(int32_t turn);
  void stamp_generation();

 private:
  void coalesce();
  std::string bytes_;
  std::vector<Run> runs_;
};

// Every text here is known to be valid UTF-8.
size_t count_chars(std::string_view bytes);
size_t char_offset(std::string_view bytes, size_t index);  // byte of character `index`, or size() beyond the end
bool is_space(char32_t c);                                 // like Python's str.isspace

enum class Side { left, right, both };

// Takes time linear in the text, whatever `part` is.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
size_t find_last_text(std::string_view text, std::string_view part);

// Python's str methods; positions and counts are in characters.
Text strip(const Text& text, std::optional<std::string_view> chars, Side side);
std::vector<Text> split(const Text& text, std::optional<std::string_view> separator, int64_t limit, bool from_right);
std::vector<Text> split_lines(const Text& text, bool keep_ends);
Text replace(const Text& text, std::string_view from, const Text& to, int64_t limit);
Text repeat(const Text& text, int64_t times);
std::vector<Text> characters(const Text& text);

enum class Case { upper, lower, title, capitalize, swap, jinja_title };
Text change_case(const Text& text, Case to);

}  // namespace megatrain::jinja
