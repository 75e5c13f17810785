// The page that `megatrain report` writes: one HTML file that needs nothing beside it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatrain/report/run_history.h"
#include "megatrain/report/svg_lanes.h"
#include "megatrain/report/svg_memory.h"

namespace megatrain {

struct ReportData {
  std::string run;                // its directory
  std::string architecture;       // empty: not known
  int64_t parameters = 0;         // 0: not known
  int64_t active_parameters = 0;  // that work on a token
  std::string machine;            // empty: not known
  std::string configuration;      // YAML
  int64_t steps = 0;              // of the whole run
  bool complete = false;
  bool aliased = false;  // device memory is host memory
  RunHistory history;
  std::optional<LaneTracks> lanes;
  std::vector<TierMemory> memory;
};

std::string report_page(const ReportData& data);

}  // namespace megatrain
