// The lanes of one step as a chart: what ran when, coloured by what it is for.
#pragma once

#include <string>
#include <vector>

#include "megatrain/io/json.h"

namespace megatrain {

struct LaneSpan {
  std::string action;  // "block forward"
  int64_t layer = -1;
  double start_s = 0, end_s = 0;
  std::string experts = {};  // of the layer, "experts 1 to 8"; empty: not of some of them
};

struct LaneTracks {
  struct Lane {
    std::string name;
    std::vector<LaneSpan> spans;  // by start
  };
  int64_t step = 0;
  std::vector<Lane> lanes;
};

// What engine/trace.h writes, of its first step. `where` names the file in errors. Throws Error(bad_input).
LaneTracks read_lanes(const nlohmann::json& trace, const std::string& where);

// A <figure>. Spans too short to be seen apart become one, so that the chart is at most a few thousand boxes.
std::string svg_lanes(const LaneTracks& tracks);

}  // namespace megatrain
