// The curves of a page, drawn for both `report` and `watch --http`.
#pragma once

#include <string>
#include <vector>

#include "megatrain/report/report_data.h"
#include "megatrain/report/svg_chart.h"

namespace megatrain {

// A reader's choice. Smoothing is not part of it: a figure has all curves, and the page's style shows some of them.
struct ChartChoice {
  Across across = Across::step;
  bool logarithmic_loss = false;
};

// All choices, starting with the one that a page shows first.
std::vector<ChartChoice> all_chart_choices();

// The element `charts`: loss, learning rate, gradient norm, speed and step time of all runs, with one figure per
// choice. The figures of the first choice are shown, the others hidden.
std::string charts(const std::vector<const ReportData*>& runs, const std::vector<ChartChoice>& choices);

}  // namespace megatrain
