// The page that `megatrain report` writes, one HTML file that needs nothing beside it, and that `megatrain watch
// --http` serves and lets grow.
#pragma once

#include <string>
#include <vector>

#include "megatrain/report/report_data.h"

namespace megatrain {

// What the page shows without its script, and beside the data that the script draws curves and lanes from.
std::string report_page(const ReportData& data);

// The curves of all runs together, the rest of the one at `selected`. The script asks the page's own server for what
// comes after, and for style.css and script.js.
std::string live_page(const std::vector<const ReportData*>& runs, size_t selected);

}  // namespace megatrain
