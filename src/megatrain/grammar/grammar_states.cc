#include "megatrain/grammar/grammar_states.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

GrammarStates::GrammarStates(Grammar grammar) : grammar_(std::move(grammar)) { start(); }

void GrammarStates::start() {
  made_ = {};
  seen_.clear();
  enter(grammar_.rules[static_cast<size_t>(grammar_.root)], kNoCalls);
  first_ = number_of(std::move(made_));
}

int32_t GrammarStates::called(int32_t next, int32_t outer) {
  const auto [at, fresh] = known_calls_.try_emplace({next, outer}, static_cast<int32_t>(calls_.size()));
  if (fresh) calls_.push_back({.next = next, .outer = outer, .depth = depth_of(outer) + 1});
  return at->second;
}

// Adds to made_ the places that are reached from a step without reading.
void GrammarStates::enter(int32_t begin, int32_t begin_calls) {
  std::vector<Place> open = {{begin, begin_calls}};
  while (!open.empty()) {
    const Place place = open.back();
    open.pop_back();
    // what could not end within the depth is not begun
    if (depth_of(place.calls) + grammar_.depth[static_cast<size_t>(place.step)] > Grammar::kMostDepth) continue;
    if (!seen_.try_emplace(place, true).second) continue;
    if (++work_ > kMostWork || seen_.size() > 4 * kMostPlaces || made_.places.size() > kMostPlaces)
      fail_input("the schema is too ambiguous: too many of its choices begin alike; use fewer choices in anyOf");
    const GrammarStep& step = grammar_.steps[static_cast<size_t>(place.step)];
    switch (step.kind) {
      case GrammarStep::Kind::read: made_.places.push_back(place); break;
      case GrammarStep::Kind::choose:
        for (int32_t i = 0; i < step.count; ++i)
          open.push_back({grammar_.choices[static_cast<size_t>(step.first + i)], place.calls});
        break;
      case GrammarStep::Kind::call:
        open.push_back({grammar_.rules[static_cast<size_t>(step.rule)],
                        step.next == Grammar::kEnd ? place.calls : called(step.next, place.calls)});
        break;
      case GrammarStep::Kind::end:
        if (place.calls == kNoCalls) {
          made_.accepts = true;
        } else {
          const Calls& calls = calls_[static_cast<size_t>(place.calls)];
          open.push_back({calls.next, calls.outer});
        }
        break;
    }
  }
}

int32_t GrammarStates::number_of(State state) {
  std::ranges::sort(state.places);
  const auto [at, fresh] = numbers_.try_emplace({state.places, state.accepts}, static_cast<int32_t>(states_.size()));
  if (!fresh) return at->second;
  if (states_.size() >= kMostStates) {
    numbers_.erase(at);
    fail_input("the schema is too large to be followed; use fewer choices, or smaller maxLength and maxItems");
  }
  state.next.fill(kUnknown);
  places_ += state.places.size();
  states_.push_back(std::move(state));
  return at->second;
}

int32_t GrammarStates::make_step(int32_t state, uint8_t byte) {
  made_ = {};
  seen_.clear();
  const std::vector<Place> places = states_[static_cast<size_t>(state)].places;  // a copy: states_ grows
  for (const Place& place : places) {
    const GrammarStep& step = grammar_.steps[static_cast<size_t>(place.step)];
    if (grammar_.sets[static_cast<size_t>(step.set)].test(byte)) enter(step.next, place.calls);
  }
  const int32_t next = made_.places.empty() && !made_.accepts ? kDead : number_of(std::move(made_));
  states_[static_cast<size_t>(state)].next[byte] = next;
  return next;
}

int32_t GrammarStates::forget_others(int32_t state) {
  State kept = std::move(states_[static_cast<size_t>(state)]);
  states_.clear();
  numbers_.clear();
  places_ = 0;
  // Calls stay numbered while the kept state uses them; those of a long answer are as few as its depth.
  const std::vector<Calls> old = std::exchange(calls_, {});
  known_calls_.clear();
  const auto moved = [&](const auto& self, int32_t calls) -> int32_t {
    if (calls == kNoCalls) return kNoCalls;
    const Calls& c = old[static_cast<size_t>(calls)];
    return called(c.next, self(self, c.outer));
  };
  for (Place& place : kept.places) place.calls = moved(moved, place.calls);
  start();
  return number_of(std::move(kept));
}

}  // namespace megatrain
