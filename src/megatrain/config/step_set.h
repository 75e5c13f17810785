// A set of steps, parsed from text and formatted back.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace megatrain {

// Steps of a run, counted from 1; 0 names the state before the first step.
// Written as "none", "all" (every step from 1), or steps and ranges: "1,5,8-10".
struct StepSet {
  bool all = false;
  std::vector<std::pair<int64_t, int64_t>> ranges;  // first and last step, ascending, not adjacent or overlapping

  bool empty() const { return !all && ranges.empty(); }
  bool contains(int64_t step) const;
  bool operator==(const StepSet&) const = default;
};

// Throws std::invalid_argument when the text is in none of the accepted forms.
StepSet parse_steps(const std::string& text);
std::string format_steps(const StepSet& steps);

}  // namespace megatrain
