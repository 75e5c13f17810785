#include "megatrain/model/trained/train_rules.h"

#include <algorithm>
#include <bitset>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/model/trained/adapter_checks.h"
#include "megatrain/model/trained/module_pattern.h"

namespace megatrain {

namespace {

struct Glyph {
  bool any_text = false;      // `*`
  std::bitset<256> accepted;  // if not any_text: the characters it matches
};

size_t code(char c) { return static_cast<unsigned char>(c); }

// Reads the set after the '[' at `at`, and moves `at` to its ']'.
std::bitset<256> read_set(const std::string& pattern, size_t& at) {
  const size_t end = pattern.find(']', at + 1);
  if (end == std::string::npos || end == at + 1)
    fail_config(
        fmt::format("the pattern '{}' has a '[' without a set and its ']'; expected a set such as [0-9]", pattern));
  const bool inverted = pattern[at + 1] == '!';
  std::bitset<256> set;
  for (size_t i = at + 1 + (inverted ? 1 : 0); i < end; ++i) {
    const bool range = i + 2 < end && pattern[i + 1] == '-';
    for (size_t c = code(pattern[i]); c <= code(pattern[range ? i + 2 : i]); ++c) set.set(c);
    if (range) i += 2;
  }
  at = end;
  return inverted ? ~set : set;
}

std::vector<Glyph> read_pattern(const std::string& pattern) {
  std::vector<Glyph> glyphs;
  for (size_t at = 0; at < pattern.size(); ++at) {
    Glyph& glyph = glyphs.emplace_back();
    switch (pattern[at]) {
      case '*': glyph.any_text = true; break;
      case '?': glyph.accepted.set(); break;
      case '[': glyph.accepted = read_set(pattern, at); break;
      default: glyph.accepted.set(code(pattern[at]));
    }
  }
  return glyphs;
}

bool matches(const std::vector<Glyph>& pattern, const std::string& name) {
  size_t at = 0, i = 0;
  // The glyph after the last `*` (0: none yet), and the position in the name where it was tried.
  size_t behind_star = 0, tried = 0;
  while (i < name.size()) {
    if (at < pattern.size() && pattern[at].any_text) {
      behind_star = ++at;
      tried = i;
    } else if (at < pattern.size() && pattern[at].accepted.test(code(name[i]))) {
      ++at;
      ++i;
    } else if (behind_star > 0) {  // the star matches one character more
      at = behind_star;
      i = ++tried;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(at), pattern.end(),
                     [](const Glyph& glyph) { return glyph.any_text; });
}

class NamePattern {
 public:
  NamePattern(const std::string& text, const std::string& key) {
    if (text.starts_with('^'))
      expression_.emplace(text, key);
    else
      glyphs_ = read_pattern(text);
  }

  bool matches(const std::string& name) const {
    return expression_ ? expression_->matches(name) : megatrain::matches(glyphs_, name);
  }
  // Empty for a regular expression.
  const std::vector<Glyph>& glyphs() const { return glyphs_; }

 private:
  std::vector<Glyph> glyphs_;
  std::optional<ModulePattern> expression_;
};

// The edit distance: the fewest characters of the name to change, add or drop so that it matches.
int64_t edits(const std::vector<Glyph>& pattern, const std::string& name) {
  std::vector<int64_t> row(name.size() + 1);  // distance of the glyphs so far to each prefix of the name
  for (size_t j = 0; j <= name.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (const Glyph& glyph : pattern) {
    int64_t diagonal = row[0];
    row[0] += glyph.any_text ? 0 : 1;
    for (size_t j = 1; j <= name.size(); ++j) {
      const int64_t above = std::exchange(diagonal, row[j]);
      row[j] = glyph.any_text
                   ? std::min(row[j], row[j - 1])
                   : std::min({above + (glyph.accepted.test(code(name[j - 1])) ? 0 : 1), row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

[[noreturn]] void fail_unmatched(const char* key, const std::string& text, const NamePattern& pattern,
                                 const std::vector<LayerLayout>& layouts, bool tied) {
  std::vector<std::pair<int64_t, std::string>> names;
  for (const LayerLayout& layout : layouts) {
    for (const TensorSpec& tensor : layout.tensors)
      names.emplace_back(edits(pattern.glyphs(), tensor.name), tensor.name);
  }
  std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> nearest;
  for (size_t i = 0; i < std::min<size_t>(3, names.size()); ++i) nearest.push_back(names[i].second);
  const bool head = tied && pattern.matches("lm_head.weight");
  fail_config(
      fmt::format("{}: the pattern '{}' matches no tensor of the model; {}", key, text,
                  head ? "its output matrix is tied: name model.embed_tokens.weight"
                       : fmt::format("{} {}", pattern.glyphs().empty() ? "it has tensors such as" : "near it are",
                                     fmt::join(nearest, ", "))));
}

}  // namespace

bool matches_pattern(const std::string& pattern, const std::string& name) {
  return NamePattern(pattern, "a pattern").matches(name);
}

namespace {

LayerLayout without_buffers(LayerLayout layout) {
  for (TensorSpec& tensor : layout.tensors) tensor.trainable = tensor.trainable && tensor.role != TensorRole::buffer;
  return make_layout(std::move(layout.tensors));
}

}  // namespace

std::vector<LayerLayout> freeze_tensors(std::vector<LayerLayout> layouts, const TrainRules& rules, bool tied) {
  if (rules.adapter.any()) {
    freeze_base(layouts, rules.adapter, tied);
    for (LayerLayout& layout : layouts) layout = without_buffers(std::move(layout));
    return layouts;
  }
  if (!rules.train_only.empty()) {
    for (LayerLayout& layout : layouts) {
      for (TensorSpec& tensor : layout.tensors) tensor.trainable = false;
    }
  }
  const auto apply = [&](const char* key, const std::vector<std::string>& patterns, bool trainable) {
    for (const std::string& text : patterns) {
      const NamePattern pattern(text, key);
      bool matched = false;
      for (LayerLayout& layout : layouts) {
        for (TensorSpec& tensor : layout.tensors) {
          if (!pattern.matches(tensor.name)) continue;
          tensor.trainable = trainable && tensor.role != TensorRole::buffer;
          matched = true;
        }
      }
      if (!matched) fail_unmatched(key, text, pattern, layouts, tied);
    }
  };
  apply("train_only", rules.train_only, true);
  apply("freeze", rules.freeze, false);
  int64_t trained = 0;
  for (LayerLayout& layout : layouts) {
    layout = without_buffers(std::move(layout));
    trained += layout.state_elements;
  }
  if (trained == 0)
    fail_config(
        "freeze and train_only leave no tensor to train; take a pattern out of freeze, or add one to train_only");
  return layouts;
}

}  // namespace megatrain
