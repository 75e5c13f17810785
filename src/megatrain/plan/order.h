// Happens-before over lanes: vector clocks, and the derivation of waits from accesses.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "megatrain/plan/schedule.h"

namespace megatrain {

// For each lane, the number of its actions known to be done.
struct LaneClock {
  std::array<int64_t, kLanes> done{};

  void join(const LaneClock& other) {
    for (size_t i = 0; i < done.size(); ++i) done[i] = done[i] > other.done[i] ? done[i] : other.done[i];
  }
};

// An occurrence of an action in the unrolled sequence of steps.
struct Occurrence {
  int64_t step = 0;
  int64_t action = 0;
  Lane lane = Lane::compute;
  int64_t sequence = 0;  // position in its lane, from 1
  LaneClock clock;       // all actions known to be done when this one is done, itself included

  bool knows(const Occurrence& earlier) const {
    return clock.done[static_cast<size_t>(earlier.lane)] >= earlier.sequence;
  }
};

// The accesses to one resource that a new access may conflict with: the last write and all reads since.
struct History {
  std::vector<int64_t> readers;  // occurrence indices
  int64_t writer = -1;

  void note(int64_t occurrence, bool write) {
    if (write) {
      writer = occurrence;
      readers.clear();
    } else {
      readers.push_back(occurrence);
    }
  }
};

// Fills in the waits of every action: the smallest set that orders every conflicting pair, within a step and across
// steps. With `serial`, every action also waits for the one before it.
void derive_waits(std::vector<Action>& actions, bool serial);

}  // namespace megatrain
