// The curves of a page, drawn in one place for `report` and for `watch --http`.
#pragma once

#include <string>
#include <vector>

#include "megatrain/report/report_data.h"
#include "megatrain/report/svg_chart.h"

namespace megatrain {

// What a reader chose. Smoothing is no part of it: a drawing has all curves, and the page's style shows some.
struct ChartChoice {
  Across across = Across::step;
  bool logarithmic_loss = false;
};

// Every choice there is, the one a page begins with first.
std::vector<ChartChoice> all_chart_choices();

// The element `charts`: loss, learning rate, gradient norm, speed and time of a step of all runs, a figure a choice.
// The figures of the first choice are shown, the others hidden.
std::string charts(const std::vector<const ReportData*>& runs, const std::vector<ChartChoice>& choices);

}  // namespace megatrain
