// What a step tells: one object a line in RUN/metrics.jsonl, and one line for a person.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/base/log.h"
#include "megatrain/train/trainer.h"

namespace megatrain {

struct StepMetrics {
  int64_t step = 0;
  int64_t steps = 0;
  double lr = 0;
  double epoch = 0;  // passes over the data that are done; 0: not counted
  StepReport report;
  int64_t hbm_peak = 0, host_peak = 0;  // bytes
};

std::string metrics_json(const StepMetrics& metrics);  // floats with 17 significant digits
// The line of a step, what matters most first. `left` says how long the run will still take; empty: nothing is said of
// it.
std::vector<LogField> metrics_fields(const StepMetrics& metrics, const std::string& left = "");

}  // namespace megatrain
