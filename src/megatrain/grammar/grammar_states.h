// The automaton of a grammar: which bytes may follow, byte by byte. A state is a set of places in the grammar, each
// with the calls that lead to it. States are made when they are first visited.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "megatrain/grammar/grammar.h"

namespace megatrain {

class GrammarStates {
 public:
  static constexpr int32_t kDead = -1;  // no continuation
  // More places at once than this: the grammar is too ambiguous. More states: it is too large.
  static constexpr size_t kMostPlaces = 1024;
  static constexpr size_t kMostStates = 16'384;

  // Steps of the grammar that may be looked at between two calls of allow_work(): a bound on time and memory.
  static constexpr int64_t kMostWork = 2'000'000;

  explicit GrammarStates(Grammar grammar);

  int32_t first() const { return first_; }
  // The state after a byte, or kDead. Throws Error(bad_input) beyond the limits.
  int32_t step(int32_t state, uint8_t byte) {
    const int32_t known = states_[static_cast<size_t>(state)].next[byte];
    return known != kUnknown ? known : make_step(state, byte);
  }
  bool accepts(int32_t state) const { return states_[static_cast<size_t>(state)].accepts; }  // may end here
  bool continues(int32_t state) const { return !states_[static_cast<size_t>(state)].places.empty(); }

  void allow_work() { work_ = 0; }

  size_t count() const { return states_.size(); }
  size_t places() const { return places_; }  // of all states
  // Forgets all states but this one, which gets the number that is returned.
  int32_t forget_others(int32_t state);

 private:
  static constexpr int32_t kUnknown = -2;
  static constexpr int32_t kNoCalls = -1;

  // A step that reads, and the calls to return to, innermost first, as an index of calls_.
  struct Place {
    int32_t step, calls;
    auto operator<=>(const Place&) const = default;
  };
  struct Calls {
    int32_t next, outer, depth;
  };
  struct State {
    std::vector<Place> places;  // sorted
    bool accepts = false;
    std::array<int32_t, 256> next;
  };

  int32_t make_step(int32_t state, uint8_t byte);
  int32_t number_of(State state);
  void enter(int32_t step, int32_t calls);
  int32_t called(int32_t next, int32_t outer);
  int32_t depth_of(int32_t calls) const { return calls == kNoCalls ? 0 : calls_[static_cast<size_t>(calls)].depth; }
  void start();

  Grammar grammar_;
  std::vector<State> states_;
  std::map<std::pair<std::vector<Place>, bool>, int32_t> numbers_;
  std::vector<Calls> calls_;
  std::map<std::pair<int32_t, int32_t>, int32_t> known_calls_;
  int32_t first_ = 0;
  size_t places_ = 0;
  int64_t work_ = 0;

  // while a state is made
  State made_;
  std::map<Place, bool> seen_;
};

}  // namespace megatrain
