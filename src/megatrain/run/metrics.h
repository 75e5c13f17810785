// The metrics of a step: one JSON object per line in RUN/metrics.jsonl, and one log line for people.
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
  double epoch = 0;  // completed passes over the data; 0: not counted
  StepReport report;
  int64_t hbm_peak = 0, host_peak = 0;  // bytes
};

std::string metrics_json(const StepMetrics& metrics);  // floats with 17 significant digits
// The log line of a step, most important first. `left` is the remaining time of the run; empty: omitted.
std::vector<LogField> metrics_fields(const StepMetrics& metrics, const std::string& left = "");

}  // namespace megatrain
