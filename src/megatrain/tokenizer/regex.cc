#include "megatrain/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/tokenizer/linear_regex.h"

namespace megatrain {

template <auto Free>
struct Pcre2Freed {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};

namespace {

constexpr size_t kFirstStackBytes = 64 << 10;
constexpr size_t kMaxStackBytes = 256 << 20;  // only deep repetitions of groups use that much

// A backtracking matcher may look at the same characters once for every match, or far more often. So it gets a limited
// window and a limited number of steps; what it cannot decide within them, linear_regex.h decides. The last two limits
// are for patterns that linear_regex.h cannot take.
constexpr size_t kWindow = 1024;  // code points after the start of a match
constexpr uint32_t kMatchLimit = 100'000;
constexpr uint32_t kLoneMatchLimit = 10'000'000;
constexpr size_t kLooksPerCode = 1000;

// What a thread needs for matching.
struct Matcher {
  std::unique_ptr<pcre2_match_data, Pcre2Freed<pcre2_match_data_free>> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, Pcre2Freed<pcre2_match_context_free>> context{
      pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, Pcre2Freed<pcre2_jit_stack_free>> stack{
      pcre2_jit_stack_create(kFirstStackBytes, kMaxStackBytes, nullptr)};
  std::string classes;

  Matcher() {
    if (!data || !context || !stack) throw std::bad_alloc();
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    pcre2_set_depth_limit(context.get(), UINT32_MAX);
  }
};

Matcher& this_threads_matcher() {
  thread_local Matcher matcher;
  return matcher;
}

// Undecided: the window ended, or there were too many steps.
bool is_undecided(int result) {
  return result == PCRE2_ERROR_PARTIAL || result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_JIT_STACKLIMIT ||
         result == PCRE2_ERROR_DEPTHLIMIT || result == PCRE2_ERROR_HEAPLIMIT;
}

std::string pcre2_reason(int code) {
  PCRE2_UCHAR text[160];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// One byte for each code point.
void to_classes(std::string_view text, const CodePointMap<uint8_t>& classes, std::string& out) {
  out.resize(text.size());
  char* to = out.data();
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) *to++ = static_cast<char>(classes[next_code(at)]);
  out.resize(static_cast<size_t>(to - out.data()));
}

}  // namespace

struct TokenizerRegex::Compiled {
  std::unique_ptr<pcre2_code, Pcre2Freed<pcre2_code_free>> code;
  bool jit = false;
  std::optional<LinearRegex> linear;

  int match(std::string_view text, size_t from, uint32_t options, Matcher& matcher) const {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    return (jit ? pcre2_jit_match : pcre2_match)(code.get(), subject, text.size(), from, options, matcher.data.get(),
                                                 matcher.context.get());
  }
};

TokenizerRegex::TokenizerRegex(std::string_view pattern, const std::string& where)
    : where_(where), compiled_(std::make_unique<Compiled>()) {
  ClassPattern translated = translate_pattern(pattern, where);
  classes_ = std::move(translated.classes);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.pattern.data()),
                                      translated.pattern.size(), 0, &error, &offset, nullptr));
  if (!compiled_->code) {
    if (error == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
    fail_input(
        fmt::format("{}: the regular expression \"{}\" cannot be used: {}; correct the file or download it again.",
                    where, pattern.substr(0, 200), pcre2_reason(error)));
  }
  // PCRE2 10.42's JIT misses matches of a lazy repetition in an atomic group; its interpreter does not.
  const bool atomic = translated.pattern.find("(?>") != std::string::npos;
  compiled_->jit =
      !atomic && pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  compiled_->linear = LinearRegex::compile(translated.pattern);
}

TokenizerRegex::~TokenizerRegex() = default;
TokenizerRegex::TokenizerRegex(TokenizerRegex&&) noexcept = default;
TokenizerRegex& TokenizerRegex::operator=(TokenizerRegex&&) noexcept = default;

void TokenizerRegex::find_all(std::string_view text, std::vector<ByteRange>& matches) const {
  matches.clear();
  Matcher& matcher = this_threads_matcher();
  to_classes(text, classes_, matcher.classes);
  const std::string_view classes = matcher.classes;
  const size_t codes = classes.size();
  const bool ascii = codes == text.size();
  const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(matcher.data.get());
  pcre2_set_match_limit(matcher.context.get(), compiled_->linear ? kMatchLimit : kLoneMatchLimit);

  // Byte offset of a code point by its number; calls must use ascending numbers.
  size_t code_at = 0, byte_at = 0;
  const auto byte_of = [&](size_t code) {
    if (ascii) return static_cast<uint32_t>(code);
    for (; code_at < code; code_at++) byte_at += utf8_length(text[byte_at]);
    return static_cast<uint32_t>(byte_at);
  };

  std::optional<LinearRegex::Search> linear;
  size_t from = 0, window = kWindow, looked_at = 0;
  bool any = false;
  size_t last_end = 0;
  while (from <= codes) {
    const size_t reach = std::min(codes, from + window);
    const bool whole = reach == codes;
    const int result = compiled_->match(classes.substr(0, reach), from, whole ? 0 : PCRE2_PARTIAL_HARD, matcher);
    size_t begin = 0, end = 0;
    if (result >= 0) {
      begin = found[0];
      end = found[1];
    } else if (is_undecided(result) && compiled_->linear) {
      if (!linear) linear.emplace(*compiled_->linear, classes);
      const std::optional<LinearRegex::Search::Match> match = linear->find(from);
      if (linear->exhausted()) fail_on(text, "it needs too much memory");
      if (!match) break;
      begin = match->begin;
      end = match->end;
    } else if (result == PCRE2_ERROR_PARTIAL) {
      window *= 2;
      looked_at += reach - from;
      if (looked_at > kLooksPerCode * codes) fail_on(text, "it backtracks too much");
      continue;
    } else if (result == PCRE2_ERROR_NOMEMORY) {
      throw std::bad_alloc();
    } else if (result != PCRE2_ERROR_NOMATCH) {
      fail_on(text, pcre2_reason(result));
    }
    // An assertion at the end of the window has not seen what follows.
    if (result == PCRE2_ERROR_NOMATCH || (!whole && begin == reach && result >= 0)) {
      if (whole) break;
      from = reach;
      continue;
    }
    window = kWindow;
    if (begin == end && any && last_end == end) {  // an empty match right after a match
      from++;
      continue;
    }
    const uint32_t first = byte_of(begin);
    matches.push_back({first, byte_of(end)});
    from = last_end = end;
    any = true;
  }
}

void TokenizerRegex::fail_on(std::string_view text, const std::string& reason) const {
  fail_input(fmt::format("{}: the regular expression fails on a text of {} bytes: {}; split the text.", where_,
                         text.size(), reason));
}

}  // namespace megatrain
