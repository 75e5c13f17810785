// The values of a template: Python's, with the message that each came from.
#pragma once

#include <cstdint>
#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "megatrain/chat/jinja/big_integer.h"
#include "megatrain/chat/jinja/text.h"

namespace megatrain::jinja {

struct MacroNode;
struct Statement;
struct Frame;
struct Value;

struct None {};
struct Undefined {
  std::shared_ptr<const std::string> message;  // the error of an operation on it
};

enum class SequenceKind { list, tuple, range, iterator, keys, values, items };

// Immutable, except that reading an iterator empties it.
struct Sequence {
  SequenceKind kind = SequenceKind::list;
  std::vector<Value> items;
  int depth = 1;
  size_t weight = 0;     // as weight() counts it
  std::string shown;     // a range's repr
  bool grouped = false;  // a pair made by groupby, with names
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in insertion order
  int depth = 1;
  size_t weight = 0;
  int32_t message = -1;  // this is that whole message, or was made from it
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

struct Loop {
  size_t index = 0;  // from 0
  std::vector<Value> items;
  std::vector<Value> last_seen;          // for loop.changed
  int64_t depth = 0;                     // nesting of recursive calls
  const Statement* recursive = nullptr;  // set if the loop can be called
  std::shared_ptr<Frame> outer;          // scope of the statement, if the loop can be called
};

enum class CallableKind { global, method, macro };
struct Callable;

struct Value {
  // BigInteger is used only beyond 64 bits.
  std::variant<Undefined, None, bool, int64_t, std::shared_ptr<const BigInteger>, double, std::shared_ptr<const Text>,
               std::shared_ptr<Sequence>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
               std::shared_ptr<Loop>, std::shared_ptr<const Callable>>
      data;
  int32_t source = -1;  // the message that a number, list or dict came from; a string's bytes know their own
  bool markup = false;  // a string marked by |safe or |escape

  static Value undefined(std::string message);
  static Value none() { return {None{}}; }
  static Value of(bool value) { return {value}; }
  static Value of(int64_t value) { return {value}; }
  static Value of(double value) { return {value}; }
  static Value of(const BigInteger& value);
  static Value integer(std::string_view digits);  // of any size; raises if malformed
  static Value of(Text text);
  static Value of(std::string text) { return of(Text(std::move(text))); }
  static Value of(const char* text) { return of(Text(text)); }
  static Value list(std::vector<Value> items, SequenceKind kind = SequenceKind::list);
  static Value dict(std::vector<std::pair<Value, Value>> entries, int32_t message = -1);

  template <class T>
  const T* get() const {
    return std::get_if<T>(&data);
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  const BigInteger* big() const;
  const Text* text() const;
  Sequence* sequence() const;
  const Dict* as_dict() const;
};

struct Callable {
  CallableKind kind = CallableKind::global;
  std::string name;
  Value self;                        // for a method
  const MacroNode* macro = nullptr;  // for a macro or a caller
  std::shared_ptr<Frame> closure;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

constexpr int kMaxValueDepth = 128;

// Bytes visited by a walk over the value and everything in it; shared parts count each time they are met. An operation
// on a value touches no more than that, apart from its result. At most 2^62.
size_t weight(const Value& value);

bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
bool less(const Value& a, const Value& b);  // raises if Python does not order them
bool contains(const Value& container, const Value& item);
const Value* find(const Dict& dict, const Value& key);
const Value* find(const Dict& dict, std::string_view key);

bool is_integer(const Value& value);                         // not for bool
bool is_number(const Value& value);                          // also for bool
std::optional<int64_t> small_integer(const Value& value);    // for an int or bool within 64 bits
std::optional<BigInteger> whole_number(const Value& value);  // for an int or bool
std::optional<double> real_number(const Value& value);       // for a number; raises if it is too large for a double

std::string type_name(const Value& value);         // type(x).__name__
std::string object_type_name(const Value& value);  // Jinja's name for it in messages: "dict object"
Text to_text(const Value& value);                  // str(x)
Text to_repr(const Value& value);                  // repr(x)
std::string show_float(double value);              // repr of a float
std::string show_string(std::string_view text);    // repr of a str
Value escaped(const Value& value);                 // markupsafe's escape(x)

// The items that a for loop visits; an iterator is empty afterwards.
std::vector<Value> iterate(const Value& value);
int64_t length(const Value& value);

int64_t to_index(const Value& value, std::string_view what);                // takes an int or bool
const Text& to_string_argument(const Value& value, std::string_view what);  // takes a str

}  // namespace megatrain::jinja
