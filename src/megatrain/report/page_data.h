// A run's figures as JSON: what the report's page holds for other programs, and what `watch --http` tells its page.
#pragma once

#include <cstddef>

#include "megatrain/io/json.h"
#include "megatrain/report/report_data.h"

namespace megatrain {

// Columns over steps: step, tokens and time (both of all steps up to here), loss, grad_norm, lr, seconds, tokens_per_s.
// Above `limit` steps, neighbours become one row: their means, the last one's step, tokens and time, how many they are
// (count), and the extremes of loss and norm (loss_low, loss_high, …).
// Numbers have 7 significant digits.
nlohmann::json rows_json(const std::vector<RunStep>& steps, size_t limit);

nlohmann::json cards_json(const ReportData& data);

// Rows, evaluations and cards of one run.
nlohmann::json run_json(const ReportData& data);

}  // namespace megatrain
