// The page that `megatrain report` writes, one HTML file that needs nothing beside it, and that `megatrain watch
// --http` serves and lets grow.
#pragma once

#include <string>
#include <vector>

#include "megatrain/report/charts.h"
#include "megatrain/report/report_data.h"

namespace megatrain {

// All that the page shows is drawn here; its script chooses among the drawings. The element `data` has the figures of
// the steps, for other programs.
std::string report_page(const ReportData& data);

// The curves of all runs together, the rest of the one at `selected`. The script asks the page's own server for what
// comes after, and for style.css and script.js.
std::string live_page(const std::vector<const ReportData*>& runs, size_t selected);

// The parts of that page that grow: the elements `charts`, `lanes`, `memory` and `samples`, as the page has them.
std::string live_figures(const std::vector<const ReportData*>& runs, size_t selected, const ChartChoice& choice);

}  // namespace megatrain
