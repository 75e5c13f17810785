#include "megatrain/grammar/json_grammar.h"

#include <algorithm>
#include <vector>

namespace megatrain {

namespace {

constexpr int kMostIndent = 32;
constexpr int64_t kMostDigits = 18;

ByteSet hex_digits() { return bytes_of_text("0123456789abcdefABCDEF"); }

}  // namespace

// The rule may call itself while it is made.
template <class Make>
int32_t JsonGrammar::made(int32_t& rule, const Make& make) {
  if (rule < 0) {
    rule = builder_.new_rule();
    builder_.set_rule(rule, make());
  }
  return rule;
}

int32_t JsonGrammar::blank(int32_t next) {
  made(blank_, [&] {
    int32_t indent = Grammar::kEnd;
    for (int i = 0; i < kMostIndent; ++i)
      indent = builder_.choose({Grammar::kEnd, builder_.read(bytes_of_text(" \t"), indent)});
    return builder_.choose({Grammar::kEnd, builder_.text(" ", Grammar::kEnd), builder_.text("\n", indent)});
  });
  return builder_.call(blank_, next);
}

int32_t JsonGrammar::value() {
  return made(value_, [&] {
    std::vector<int32_t> choices;
    for (const int32_t rule : {object(), array(), string(), number(), boolean(), null()})
      choices.push_back(builder_.call(rule, Grammar::kEnd));
    return builder_.choose(choices);
  });
}

int32_t JsonGrammar::object() {
  return made(object_, [&] { return map_of(value(), Grammar::kEnd); });
}

int32_t JsonGrammar::array() {
  return made(array_, [&] { return list_of(value(), 0, std::nullopt, Grammar::kEnd); });
}

int32_t JsonGrammar::string() {
  return made(string_, [&] { return string_of(0, std::nullopt, Grammar::kEnd); });
}

// Behind a backslash. A surrogate is followed by its other half: alone it would be no text.
int32_t JsonGrammar::escape(int32_t next) {
  const auto hex = [&](const ByteSet& set, int32_t then) { return builder_.read(set, then); };
  const ByteSet any = hex_digits();
  const int32_t two = hex(any, hex(any, next));
  const int32_t low = builder_.text("\\u", hex(bytes_of_text("dD"), hex(bytes_of_text("cdefCDEF"), two)));
  const int32_t code = builder_.choose({
      hex(any & ~bytes_of_text("dD"), hex(any, two)),
      hex(bytes_of_text("dD"), hex(bytes_of_text("01234567"), two)),
      hex(bytes_of_text("dD"), hex(bytes_of_text("89abAB"), hex(any, hex(any, low)))),
  });
  return builder_.choose({builder_.read(bytes_of_text("\"\\/bfnrt"), next), builder_.text("u", code)});
}

int32_t JsonGrammar::character() {
  return made(character_, [&] {
    const auto more = [&](int first, int last, int32_t next) {
      return builder_.read(bytes_between(first, last), next);
    };
    const int32_t end = Grammar::kEnd, one = more(0x80, 0xbf, end), two = more(0x80, 0xbf, one);
    ByteSet plain = bytes_between(0x20, 0x7f);
    plain &= ~bytes_of_text("\"\\");
    // UTF-8 without surrogates and overlong forms
    return builder_.choose({
        builder_.read(plain, end),
        builder_.text("\\", escape(end)),
        more(0xc2, 0xdf, one),
        more(0xe0, 0xe0, more(0xa0, 0xbf, one)),
        more(0xe1, 0xec, two),
        more(0xed, 0xed, more(0x80, 0x9f, one)),
        more(0xee, 0xef, two),
        more(0xf0, 0xf0, more(0x90, 0xbf, two)),
        more(0xf1, 0xf3, more(0x80, 0xbf, two)),
        more(0xf4, 0xf4, more(0x80, 0x8f, two)),
    });
  });
}

int32_t JsonGrammar::string_of(int64_t least, std::optional<int64_t> most, int32_t next) {
  int32_t rest = builder_.text("\"", next);
  if (most) {
    const int32_t close = rest;
    for (int64_t i = least; i < *most; ++i) rest = builder_.choose({close, builder_.call(character(), rest)});
  } else {
    const int32_t loop = builder_.begin_loop();
    builder_.end_loop(loop, {rest, builder_.call(character(), loop)});
    rest = loop;
  }
  for (int64_t i = 0; i < least; ++i) rest = builder_.call(character(), rest);
  return builder_.text("\"", rest);
}

int32_t JsonGrammar::digits(int64_t least, int64_t most, int32_t next) {
  int32_t rest = next;
  for (int64_t i = most; i > 0; --i) {
    rest = builder_.read(bytes_between('0', '9'), rest);
    if (i > least) rest = builder_.maybe(rest, next);
  }
  return rest;
}

int32_t JsonGrammar::integer() {
  return made(integer_, [&] {
    const int32_t end = Grammar::kEnd;
    const int32_t whole = builder_.choose(
        {builder_.text("0", end), builder_.read(bytes_between('1', '9'), digits(0, kMostDigits - 1, end))});
    return builder_.choose({whole, builder_.text("-", whole)});
  });
}

int32_t JsonGrammar::number() {
  return made(number_, [&] {
    const int32_t end = Grammar::kEnd, power = digits(1, 2, end);
    const int32_t exponent = builder_.maybe(
        builder_.read(bytes_of_text("eE"), builder_.maybe(builder_.read(bytes_of_text("+-"), power), power)), end);
    const int32_t point = builder_.maybe(builder_.text(".", digits(1, kMostDigits, exponent)), exponent);
    return builder_.call(integer(), point);
  });
}

int32_t JsonGrammar::boolean() {
  return made(boolean_, [&] { return builder_.one_of({"true", "false"}, Grammar::kEnd); });
}

int32_t JsonGrammar::null() {
  return made(null_, [&] { return builder_.text("null", Grammar::kEnd); });
}

int32_t JsonGrammar::map_of(int32_t value, int32_t next) {
  const int32_t close = blank(builder_.text("}", next)), rest = builder_.begin_loop();
  const int32_t member = builder_.call(string(), builder_.text(":", blank(builder_.call(value, rest))));
  builder_.end_loop(rest, {close, builder_.text(",", blank(member))});
  return builder_.text("{", builder_.choose({close, blank(member)}));
}

int32_t JsonGrammar::list_of(int32_t value, int64_t least, std::optional<int64_t> most, int32_t next) {
  const int32_t close = blank(builder_.text("]", next));
  const auto comma = [&](int32_t then) { return builder_.text(",", blank(builder_.call(value, then))); };
  if (most && *most == 0) return builder_.text("[", close);
  int32_t rest = close;  // after the first max(least, 1) values
  if (most) {
    for (int64_t i = std::max<int64_t>(least, 1); i < *most; ++i) rest = builder_.choose({close, comma(rest)});
  } else {
    rest = builder_.begin_loop();
    builder_.end_loop(rest, {close, comma(rest)});
  }
  for (int64_t i = 1; i < least; ++i) rest = comma(rest);
  const int32_t first = blank(builder_.call(value, rest));
  return builder_.text("[", least > 0 ? first : builder_.choose({close, first}));
}

}  // namespace megatrain
