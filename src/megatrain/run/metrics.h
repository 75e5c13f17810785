// What a step tells: one object a line in RUN/metrics.jsonl, and one line for a person.
#pragma once

#include <cstdint>
#include <string>

#include "megatrain/train/trainer.h"

namespace megatrain {

struct StepMetrics {
  int64_t step = 0;
  int64_t steps = 0;
  double lr = 0;
  StepReport report;
  int64_t hbm_peak = 0, host_peak = 0;  // bytes
};

std::string metrics_json(const StepMetrics& metrics);  // floats with 17 significant digits
// `left` says how long the run will still take; empty: nothing is said of it.
std::string metrics_line(const StepMetrics& metrics, const std::string& left = "");

}  // namespace megatrain
