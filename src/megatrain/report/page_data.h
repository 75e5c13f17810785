// A run's figures as JSON: what the report page holds for other programs, and what `watch --http` sends its page.
#pragma once

#include <cstddef>

#include "megatrain/io/json.h"
#include "megatrain/report/report_data.h"

namespace megatrain {

// Columns over steps: step, tokens and time (both cumulative), loss, grad_norm, lr, seconds, tokens_per_s. Beyond
// `limit` steps, neighbours are merged into one row, which has
// - step, tokens and time of the last one, and the means of the other columns
// - how many they are (count)
// - the extremes of loss and norm (loss_low, loss_high, …)
//
// Numbers have 7 significant digits.
nlohmann::json rows_json(const std::vector<RunStep>& steps, size_t limit);

nlohmann::json cards_json(const ReportData& data);

// Rows, evaluations and cards of one run.
nlohmann::json run_json(const ReportData& data);

}  // namespace megatrain
