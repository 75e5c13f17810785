// The page of a run. `megatrain report` writes it as one self-contained HTML file; `megatrain watch --http` serves it
// and updates it.
#pragma once

#include <string>
#include <vector>

#include "megatrain/report/charts.h"
#include "megatrain/report/report_data.h"

namespace megatrain {

// Everything that the page shows is drawn here; its script only chooses among the drawings. The element `data` has the
// figures of the steps, for other programs.
std::string report_page(const ReportData& data);

// Shows the curves of all runs together, and everything else for the run at `selected`. The script asks the page's own
// server for updates; style.css and script.js come from there, too.
std::string live_page(const std::vector<const ReportData*>& runs, size_t selected);

// The parts of that page that are updated: the elements `charts`, `lanes`, `memory` and `samples`.
std::string live_figures(const std::vector<const ReportData*>& runs, size_t selected, const ChartChoice& choice);

}  // namespace megatrain
