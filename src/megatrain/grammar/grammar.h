// A context-free grammar over bytes, as a program: rules call each other, and each step reads a byte of a set.
//
// It is built from its end: every function takes the step that follows and returns the step that begins.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

using ByteSet = std::bitset<256>;

struct GrammarStep {
  enum class Kind : uint8_t {
    end,     // of the rule
    read,    // a byte of sets[set], then `next`
    choose,  // one of choices[first .. first + count)
    call,    // rules[rule], then `next`
  };
  Kind kind = Kind::end;
  int32_t next = 0;
  int32_t set = 0;
  int32_t first = 0, count = 0;
  int32_t rule = 0;
};

struct Grammar {
  static constexpr int64_t kMostSteps = 200'000;
  // The deepest nesting of calls, so of values in an answer. What cannot end within it is never begun.
  static constexpr int32_t kMostDepth = 64;
  static constexpr int32_t kEnd = 0;  // the step that ends a rule

  std::vector<GrammarStep> steps;
  std::vector<int32_t> choices;
  std::vector<ByteSet> sets;
  std::vector<int32_t> rules;  // their first steps
  int32_t root = 0;            // a rule
  std::vector<int32_t> depth;  // by step: calls that the rest of its rule needs at least, one inside the other

  int64_t bytes() const;
};

class GrammarBuilder {
 public:
  GrammarBuilder() { grammar_.steps.emplace_back(); }

  int32_t read(const ByteSet& set, int32_t next);
  int32_t text(std::string_view text, int32_t next);
  int32_t choose(const std::vector<int32_t>& choices);
  int32_t maybe(int32_t begin, int32_t next) { return choose({begin, next}); }
  int32_t call(int32_t rule, int32_t next);
  // One of several texts. They share what they begin with.
  int32_t one_of(std::vector<std::string> texts, int32_t next);
  // A step that is known only after the steps that lead back to it.
  int32_t begin_loop();
  void end_loop(int32_t loop, const std::vector<int32_t>& choices);

  int32_t new_rule();
  void set_rule(int32_t rule, int32_t begin) { grammar_.rules[static_cast<size_t>(rule)] = begin; }
  int32_t rule(int32_t begin);

  // Throws Error(bad_input) if a rule that the root needs can never end.
  Grammar finish(int32_t root);

 private:
  int32_t add(const GrammarStep& step);
  void set_choices(GrammarStep& step, const std::vector<int32_t>& choices);

  Grammar grammar_;
};

// The bytes first to last, and those of a text.
ByteSet bytes_between(int first, int last);
ByteSet bytes_of_text(std::string_view text);

}  // namespace megatrain
