// JSON as rules of a grammar.
//
// White space is what serializers write: after a comma, a colon, an opening and before a closing bracket either
// nothing, one blank, or a line end with at most 32 blanks or tabs. Numbers have at most 18 digits before the point, 18
// behind it and an exponent of at most two, so that every reader takes them.
#pragma once

#include <cstdint>
#include <optional>

#include "megatrain/grammar/grammar.h"

namespace megatrain {

class JsonGrammar {
 public:
  explicit JsonGrammar(GrammarBuilder& builder) : builder_(builder) {}

  int32_t blank(int32_t next);  // optional white space
  // Rules; made when they are first asked for.
  int32_t value();
  int32_t object();  // with any keys and values
  int32_t array();
  int32_t string();
  int32_t character();  // of a string, without its quotes
  int32_t integer();
  int32_t number();
  int32_t boolean();
  int32_t null();

  // {"key": value, …} with any keys and values of one rule.
  int32_t map_of(int32_t value, int32_t next);
  // [value, …] with `least` to `most` values of one rule.
  int32_t list_of(int32_t value, int64_t least, std::optional<int64_t> most, int32_t next);
  // "…" with `least` to `most` characters.
  int32_t string_of(int64_t least, std::optional<int64_t> most, int32_t next);

 private:
  template <class Make>
  int32_t made(int32_t& rule, const Make& make);
  int32_t digits(int64_t least, int64_t most, int32_t next);
  int32_t escape(int32_t next);

  GrammarBuilder& builder_;
  int32_t blank_ = -1, value_ = -1, object_ = -1, array_ = -1, string_ = -1, character_ = -1, integer_ = -1,
          number_ = -1, boolean_ = -1, null_ = -1;
};

}  // namespace megatrain
