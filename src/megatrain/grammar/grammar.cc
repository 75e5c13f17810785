#include "megatrain/grammar/grammar.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

namespace {

constexpr int32_t kNever = 1 << 20;  // beyond every depth

}  // namespace

ByteSet bytes_between(int first, int last) {
  ByteSet set;
  for (int byte = first; byte <= last; ++byte) set.set(static_cast<size_t>(byte));
  return set;
}

ByteSet bytes_of_text(std::string_view text) {
  ByteSet set;
  for (const char c : text) set.set(static_cast<unsigned char>(c));
  return set;
}

int64_t Grammar::bytes() const {
  return static_cast<int64_t>(steps.size() * (sizeof(GrammarStep) + sizeof(int32_t)) +
                              choices.size() * sizeof(int32_t) + sets.size() * sizeof(ByteSet));
}

int32_t GrammarBuilder::add(const GrammarStep& step) {
  if (std::ssize(grammar_.steps) >= Grammar::kMostSteps)
    fail_input(
        fmt::format("the schema is too large: it needs more than {} steps; use fewer properties, or smaller "
                    "minItems, maxItems, minLength and maxLength",
                    Grammar::kMostSteps));
  grammar_.steps.push_back(step);
  return static_cast<int32_t>(grammar_.steps.size()) - 1;
}

int32_t GrammarBuilder::read(const ByteSet& set, int32_t next) {
  auto found = std::ranges::find(grammar_.sets, set);
  if (found == grammar_.sets.end()) found = grammar_.sets.insert(found, set);
  return add(
      {.kind = GrammarStep::Kind::read, .next = next, .set = static_cast<int32_t>(found - grammar_.sets.begin())});
}

int32_t GrammarBuilder::text(std::string_view text, int32_t next) {
  for (size_t i = text.size(); i > 0; --i) next = read(bytes_of_text(text.substr(i - 1, 1)), next);
  return next;
}

void GrammarBuilder::set_choices(GrammarStep& step, const std::vector<int32_t>& choices) {
  step.kind = GrammarStep::Kind::choose;
  step.first = static_cast<int32_t>(grammar_.choices.size());
  step.count = static_cast<int32_t>(choices.size());
  grammar_.choices.insert(grammar_.choices.end(), choices.begin(), choices.end());
  if (std::ssize(grammar_.choices) > 4 * Grammar::kMostSteps) fail_input("the schema is too large; use fewer choices");
}

int32_t GrammarBuilder::choose(const std::vector<int32_t>& choices) {
  if (choices.size() == 1) return choices.front();
  GrammarStep step;
  set_choices(step, choices);
  return add(step);
}

int32_t GrammarBuilder::call(int32_t rule, int32_t next) {
  return add({.kind = GrammarStep::Kind::call, .next = next, .rule = rule});
}

int32_t GrammarBuilder::one_of(std::vector<std::string> texts, int32_t next) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  // The texts [begin, end) from byte `at` on, which share the bytes before it.
  const auto from = [&](const auto& self, size_t begin, size_t end, size_t at) -> int32_t {
    std::vector<int32_t> choices;
    for (size_t i = begin; i < end;) {
      if (texts[i].size() == at) {
        choices.push_back(next);
        ++i;
        continue;
      }
      size_t same = i + 1;
      while (same < end && texts[same][at] == texts[i][at]) ++same;
      if (same == i + 1) {
        choices.push_back(text(std::string_view(texts[i]).substr(at), next));
      } else {
        size_t shared = at + 1;  // recursion is as deep as the branches, not as the texts
        while (texts[i].size() > shared && texts[same - 1].size() > shared &&
               texts[i][shared] == texts[same - 1][shared])
          ++shared;
        choices.push_back(text(std::string_view(texts[i]).substr(at, shared - at), self(self, i, same, shared)));
      }
      i = same;
    }
    return choose(choices);
  };
  return from(from, 0, texts.size(), 0);
}

int32_t GrammarBuilder::begin_loop() { return add({.kind = GrammarStep::Kind::choose}); }

void GrammarBuilder::end_loop(int32_t loop, const std::vector<int32_t>& choices) {
  set_choices(grammar_.steps[static_cast<size_t>(loop)], choices);
}

int32_t GrammarBuilder::new_rule() {
  grammar_.rules.push_back(-1);
  return static_cast<int32_t>(grammar_.rules.size()) - 1;
}

int32_t GrammarBuilder::rule(int32_t begin) {
  const int32_t rule = new_rule();
  set_rule(rule, begin);
  return rule;
}

Grammar GrammarBuilder::finish(int32_t root) {
  grammar_.root = root;
  std::vector<int32_t>& depth = grammar_.depth;
  depth.assign(grammar_.steps.size(), kNever);
  depth[Grammar::kEnd] = 0;
  const auto of = [&](int32_t step) { return depth[static_cast<size_t>(step)]; };
  // Steps mostly follow those that they lead to, so few rounds suffice.
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < grammar_.steps.size(); ++i) {
      const GrammarStep& step = grammar_.steps[i];
      int32_t least = depth[i];
      if (step.kind == GrammarStep::Kind::read) {
        least = of(step.next);
      } else if (step.kind == GrammarStep::Kind::choose) {
        for (int32_t c = 0; c < step.count; ++c)
          least = std::min(least, of(grammar_.choices[static_cast<size_t>(step.first + c)]));
      } else if (step.kind == GrammarStep::Kind::call) {
        // A call at the end of a rule takes the rule's place.
        const int32_t inner = of(grammar_.rules[static_cast<size_t>(step.rule)]);
        least = std::min(kNever, std::max(inner + (step.next == Grammar::kEnd ? 0 : 1), of(step.next)));
      }
      if (least >= depth[i]) continue;
      depth[i] = least;
      changed = true;
    }
  }
  if (of(grammar_.rules[static_cast<size_t>(root)]) > Grammar::kMostDepth)
    fail_input(fmt::format("no value of this schema is finite, or nests at most {} levels; check its $ref",
                           Grammar::kMostDepth));
  return std::move(grammar_);
}

}  // namespace megatrain
