// Curves over steps as SVG: axes with round ticks, at most a thousand points a curve.
#pragma once

#include <string>
#include <vector>

#include "megatrain/report/smoothing.h"

namespace megatrain {

struct Curve {
  std::string name;
  std::string style;  // a class of the page: "raw", "smooth", "evaluation"
  std::vector<Point> points;
  bool dots = false;  // mark every point
};

struct Chart {
  std::string title;  // with its unit
  double width = 1060, height = 320;
  std::string metric = {};   // what the page's script draws again from the page's data; empty: nothing
  bool logarithmic = false;  // where all values are positive and spread enough
  bool from_zero = false;
  std::vector<Curve> curves;
};

// A <figure> with its title, legend and <svg>. Curves without points are left out; without any, the figure says so.
std::string svg_chart(const Chart& chart);

}  // namespace megatrain
