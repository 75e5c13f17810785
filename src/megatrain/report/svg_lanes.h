// The lanes of one step as a chart: what ran when, coloured by purpose.
#pragma once

#include <string>
#include <vector>

#include "megatrain/io/json.h"

namespace megatrain {

struct LaneSpan {
  std::string action;  // "block forward"
  int64_t layer = -1;
  double start_s = 0, end_s = 0;
  std::string experts = {};  // of the layer, "experts 1 to 8"; empty: not limited to some of them
  int64_t count = 1;         // merged actions of the same kind
};

struct LaneTracks {
  struct Lane {
    std::string name;
    std::vector<LaneSpan> spans;  // sorted by start
    double floor_s = 0;           // least time this machine needs for the lane's work; 0: unknown
  };
  int64_t step = 0;
  double floor_s = 0;        // no step of the plan can be shorter on this machine; 0: unknown
  std::string machine = {};  // the machine that the floor is for
  std::vector<Lane> lanes;
};

// Reads the first step of what engine/trace.h writes. `where` names the file in errors. Throws Error(bad_input).
LaneTracks read_lanes(const nlohmann::json& trace, const std::string& where);

// The same for the lanes in RUN/live.json (run/live_file.h).
LaneTracks read_live_lanes(const nlohmann::json& live, const std::string& where);

// A <figure>. Spans too short to be distinguished are merged, so that the chart has at most a few thousand boxes.
std::string svg_lanes(const LaneTracks& tracks);

}  // namespace megatrain
