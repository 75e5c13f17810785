// What the page's script draws: a run's curves in few rows, and the lanes of a step, as JSON.
#pragma once

#include <cstddef>

#include "megatrain/io/json.h"
#include "megatrain/report/report_data.h"

namespace megatrain {

// Columns over steps: step, tokens and time (both of all steps up to here), loss, grad_norm, lr, seconds, tokens_per_s.
// Above `limit` steps, neighbours become one row: their means, the last one's step, tokens and time, how many they are
// (count), and the extremes of loss and norm (loss_low, loss_high, …). `from` leaves out the steps before it, which
// count for tokens and time all the same. Numbers have 7 significant digits.
nlohmann::json rows_json(const std::vector<RunStep>& steps, size_t limit, size_t from = 0);

nlohmann::json cards_json(const ReportData& data);
nlohmann::json memory_json(const std::vector<TierMemory>& memory);
nlohmann::json samples_json(const RunHistory& history);
nlohmann::json evaluations_json(const RunHistory& history);

// All of the above of one run.
nlohmann::json run_json(const ReportData& data);

}  // namespace megatrain
