#include "megatrain/tokenizer/linear_regex.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

constexpr size_t kMaxStates = 20'000;
constexpr size_t kBlock = 4096;
constexpr int kUnbounded = -1;

struct Unsupported {};

}  // namespace

// Parses the pattern into a tree, then lays out states from the end to the start, so that each knows its successor.
struct LinearRegex::Compiler {
  enum class NodeKind { set, sequence, either, repeat, ahead, behind, atomic, begin, end };
  struct Node {
    NodeKind kind = NodeKind::sequence;
    bool negated = false;  // for assertions
    bool lazy = false;
    int least = 0, most = 0;
    int32_t set = -1;
    std::vector<Node> parts;
  };

  explicit Compiler(std::string_view text) : pattern(text) {}

  LinearRegex compile() {
    const Node root = read_either();
    if (at != pattern.size()) throw Unsupported{};
    regex.start_ = emit(root, add({.kind = Kind::accept}));
    return std::move(regex);
  }

  bool take(std::string_view text) {
    if (pattern.substr(at, text.size()) != text) return false;
    at += text.size();
    return true;
  }

  Node read_either() {
    Node either{.kind = NodeKind::either};
    do either.parts.push_back(read_sequence());
    while (take("|"));
    return either.parts.size() == 1 ? std::move(either.parts.front()) : std::move(either);
  }

  Node read_sequence() {
    Node sequence{.kind = NodeKind::sequence};
    while (at < pattern.size() && pattern[at] != '|' && pattern[at] != ')') {
      sequence.parts.push_back(read_repeats(read_atom()));
    }
    return sequence;
  }

  Node read_atom() {
    if (take("\\A")) return {.kind = NodeKind::begin};
    if (take("\\z")) return {.kind = NodeKind::end};
    if (pattern[at] != '(') return read_set();
    Node group{.kind = NodeKind::sequence};
    if (take("(?=") || take("(?!")) {
      group.kind = NodeKind::ahead;
    } else if (take("(?<=") || take("(?<!")) {
      group.kind = NodeKind::behind;
    } else if (take("(?>")) {
      group.kind = NodeKind::atomic;
    } else if (!take("(?:")) {
      throw Unsupported{};
    }
    group.negated = pattern[at - 1] == '!';
    group.parts.push_back(read_either());
    if (!take(")")) throw Unsupported{};
    return group;
  }

  int read_byte() {
    int value = 0;
    const char* const first = pattern.data() + at;
    if (at + 2 > pattern.size() || std::from_chars(first, first + 2, value, 16).ptr != first + 2) throw Unsupported{};
    at += 2;
    return value;
  }

  Node read_set() {
    std::array<bool, 256> members{};
    if (take("[^\\x00-\\xff]")) {
    } else if (take("[")) {
      while (take("\\x")) members[static_cast<size_t>(read_byte())] = true;
      if (!take("]")) throw Unsupported{};
    } else if (take("\\x")) {
      members[static_cast<size_t>(read_byte())] = true;
    } else {
      throw Unsupported{};
    }
    const auto known = std::find(regex.sets_.begin(), regex.sets_.end(), members);
    const auto index = static_cast<int32_t>(known - regex.sets_.begin());
    if (known == regex.sets_.end()) regex.sets_.push_back(members);
    return {.kind = NodeKind::set, .set = index};
  }

  int read_number() {
    int value = 0;
    const char* const first = pattern.data() + at;
    const auto [end, error] = std::from_chars(first, pattern.data() + pattern.size(), value);
    if (error != std::errc()) throw Unsupported{};
    at += static_cast<size_t>(end - first);
    return value;
  }

  Node read_repeats(Node atom) {
    Node repeat{.kind = NodeKind::repeat};
    if (take("*")) {
      repeat.most = kUnbounded;
    } else if (take("+")) {
      repeat.least = 1;
      repeat.most = kUnbounded;
    } else if (take("?")) {
      repeat.most = 1;
    } else if (take("{")) {
      repeat.least = repeat.most = read_number();
      if (take(",")) repeat.most = at < pattern.size() && pattern[at] != '}' ? read_number() : kUnbounded;
      if (!take("}") || (repeat.most != kUnbounded && repeat.most < repeat.least)) throw Unsupported{};
    } else {
      return atom;
    }
    repeat.lazy = take("?");
    const bool possessive = !repeat.lazy && take("+");
    repeat.parts.push_back(std::move(atom));
    if (!possessive) return repeat;
    Node atomic{.kind = NodeKind::atomic};
    atomic.parts.push_back(std::move(repeat));
    return atomic;
  }

  static bool may_be_empty(const Node& node) {
    const auto part_may = [](const Node& part) { return may_be_empty(part); };
    switch (node.kind) {
      case NodeKind::set: return false;
      case NodeKind::sequence:
      case NodeKind::atomic: return std::all_of(node.parts.begin(), node.parts.end(), part_may);
      case NodeKind::either: return std::any_of(node.parts.begin(), node.parts.end(), part_may);
      case NodeKind::repeat: return node.least == 0 || may_be_empty(node.parts.front());
      default: return true;
    }
  }

  static size_t fixed_length(const Node& node) {
    size_t length = 0;
    switch (node.kind) {
      case NodeKind::set: return 1;
      case NodeKind::sequence:
      case NodeKind::atomic:
        for (const Node& part : node.parts) length += fixed_length(part);
        return length;
      case NodeKind::either:
        length = fixed_length(node.parts.front());
        for (const Node& part : node.parts) {
          if (fixed_length(part) != length) throw Unsupported{};
        }
        return length;
      case NodeKind::repeat:
        if (node.least != node.most) throw Unsupported{};
        return static_cast<size_t>(node.least) * fixed_length(node.parts.front());
      default: return 0;
    }
  }

  int32_t add(State state) {
    if (regex.states_.size() >= kMaxStates) throw Unsupported{};
    regex.states_.push_back(state);
    return static_cast<int32_t>(regex.states_.size()) - 1;
  }

  int32_t add_choice(int32_t first, int32_t second) {
    return add({.kind = Kind::choice, .next = first, .other = second, .index = static_cast<int32_t>(regex.choices_++)});
  }

  // The state that matches `node` and then `next`.
  int32_t emit(const Node& node, int32_t next) {
    switch (node.kind) {
      case NodeKind::set: return add({.kind = Kind::set, .next = next, .index = node.set});
      case NodeKind::begin: return add({.kind = Kind::begin, .next = next});
      case NodeKind::end: return add({.kind = Kind::end, .next = next});
      case NodeKind::sequence:
        for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part) next = emit(*part, next);
        return next;
      case NodeKind::either: {
        int32_t state = emit(node.parts.back(), next);
        for (auto part = node.parts.rbegin() + 1; part != node.parts.rend(); ++part) {
          state = add_choice(emit(*part, next), state);
        }
        return state;
      }
      case NodeKind::ahead:
      case NodeKind::atomic: {
        const int32_t held = emit(node.parts.front(), add({.kind = Kind::accept}));
        return add({.kind = node.kind == NodeKind::ahead ? Kind::ahead : Kind::atomic,
                    .negated = node.negated,
                    .next = next,
                    .other = held});
      }
      case NodeKind::behind: return emit_behind(node, next);
      case NodeKind::repeat: return emit_repeat(node, next);
    }
    throw Unsupported{};
  }

  int32_t emit_behind(const Node& node, int32_t next) {
    const Node& held = node.parts.front();
    std::vector<Behind> behinds;
    const int32_t accept = add({.kind = Kind::accept});
    const auto add_one = [&](const Node& one) {
      behinds.push_back({fixed_length(one), emit(one, accept)});
      regex.longest_behind_ = std::max(regex.longest_behind_, behinds.back().length);
    };
    if (held.kind == NodeKind::either) {
      for (const Node& part : held.parts) add_one(part);
    } else {
      add_one(held);
    }
    regex.behinds_.push_back(std::move(behinds));
    const auto index = static_cast<int32_t>(regex.behinds_.size()) - 1;
    return add({.kind = Kind::behind, .negated = node.negated, .next = next, .index = index});
  }

  int32_t emit_repeat(const Node& node, int32_t next) {
    const Node& body = node.parts.front();
    const auto choose = [&](int32_t again, int32_t done) {
      return node.lazy ? add_choice(done, again) : add_choice(again, done);
    };
    const int32_t after = next;
    if (node.most == kUnbounded) {
      if (may_be_empty(body)) throw Unsupported{};
      const int32_t loop = choose(-1, after);
      const int32_t once = emit(body, loop);
      (node.lazy ? regex.states_[static_cast<size_t>(loop)].other : regex.states_[static_cast<size_t>(loop)].next) =
          once;
      next = loop;
    } else {
      if (node.most > 1 && may_be_empty(body)) throw Unsupported{};
      for (int i = node.least; i < node.most; ++i) next = choose(emit(body, next), after);
    }
    for (int i = 0; i < node.least; ++i) next = emit(body, next);
    return next;
  }

  std::string_view pattern;
  size_t at = 0;
  LinearRegex regex;
};

std::optional<LinearRegex> LinearRegex::compile(std::string_view pattern) {
  try {
    return Compiler(pattern).compile();
  } catch (const Unsupported&) {
    return std::nullopt;
  }
}

LinearRegex::Search::Search(const LinearRegex& regex, std::string_view text)
    : regex_(regex), text_(text), blocks_(text.size() / kBlock + 1) {}

LinearRegex::Search::Decision& LinearRegex::Search::decision(int32_t state, size_t at) {
  std::unique_ptr<Decision[]>& block = blocks_[at / kBlock];
  if (!block) {
    block = std::make_unique<Decision[]>(kBlock * regex_.choices_);
    held_ += kBlock * regex_.choices_;
    exhausted_ = exhausted_ || held_ > kMaxMemoryBytes;
  }
  const auto choice = static_cast<size_t>(regex_.states_[static_cast<size_t>(state)].index);
  return block[at % kBlock * regex_.choices_ + choice];
}

bool LinearRegex::Search::looks(int32_t state, size_t at) {
  const State& here = regex_.states_[static_cast<size_t>(state)];
  switch (here.kind) {
    case Kind::begin: return at == 0;
    case Kind::end: return at == text_.size();
    case Kind::ahead: return matches(here.other, at) != here.negated;
    default: break;
  }
  const std::vector<Behind>& behinds = regex_.behinds_[static_cast<size_t>(here.index)];
  const bool found = std::any_of(behinds.begin(), behinds.end(), [&](const Behind& behind) {
    return behind.length <= at && matches(behind.state, at - behind.length);
  });
  return found != here.negated;
}

// Depth first, with an explicit stack of choices, because texts are long. Only assertions and atomic groups recurse.
bool LinearRegex::Search::matches(int32_t state, size_t at) {
  const size_t base = frames_.size();
  for (;;) {
    bool found = false;
    for (bool going = true; going && !exhausted_;) {
      const State& here = regex_.states_[static_cast<size_t>(state)];
      switch (here.kind) {
        case Kind::set:
          going =
              at < text_.size() && regex_.sets_[static_cast<size_t>(here.index)][static_cast<unsigned char>(text_[at])];
          at++;
          break;
        case Kind::choice: {
          const Decision known = decision(state, at);
          found = known == by_first || known == by_second;
          going = known == unknown;
          if (going) frames_.push_back({state, at, false});
          break;
        }
        case Kind::atomic:
          going = matches(here.other, at);
          if (going) at = end_of(here.other, at);
          break;
        case Kind::accept:
          found = true;
          going = false;
          break;
        default: going = looks(state, at); break;
      }
      if (going) state = here.next;
    }
    // Frames that wait for this outcome take it too, or try their second alternative.
    bool retry = false;
    while (frames_.size() > base && !retry) {
      Frame& frame = frames_.back();
      if (!found && !frame.second && !exhausted_) {
        frame.second = retry = true;
        state = regex_.states_[static_cast<size_t>(frame.state)].other;
        at = frame.at;
      } else {
        decision(frame.state, frame.at) = !found ? fails : frame.second ? by_second : by_first;
        frames_.pop_back();
      }
    }
    if (!retry) return found;
  }
}

size_t LinearRegex::Search::end_of(int32_t state, size_t at) {
  for (;;) {
    const State& here = regex_.states_[static_cast<size_t>(state)];
    switch (here.kind) {
      case Kind::accept: return at;
      case Kind::set: at++; break;
      case Kind::atomic: at = end_of(here.other, at); break;
      case Kind::choice:
        if (decision(state, at) == by_second) {
          state = here.other;
          continue;
        }
        break;
      default: break;
    }
    state = here.next;
  }
}

std::optional<LinearRegex::Search::Match> LinearRegex::Search::find(size_t from) {
  for (size_t at = from; at <= text_.size() && !exhausted_; at++) {
    const size_t needed = (at - std::min(at, regex_.longest_behind_)) / kBlock;
    for (; freed_ < needed; freed_++) {
      if (blocks_[freed_]) held_ -= kBlock * regex_.choices_;
      blocks_[freed_].reset();
    }
    if (matches(regex_.start_, at) && !exhausted_) return Match{at, end_of(regex_.start_, at)};
  }
  return std::nullopt;
}

}  // namespace megatrain
