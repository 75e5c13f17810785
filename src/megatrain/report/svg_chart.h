// Curves over steps, tokens or time as SVG: axes with round ticks, a few hundred points a curve. The drawing stretches
// to the width there is, so nothing draws it again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "megatrain/report/smoothing.h"

namespace megatrain {

enum class Across { step, tokens, time };
const char* across_name(Across across);  // "step", "tokens", "time"

struct Curve {
  std::string name;
  std::string style;          // classes of the page: "raw", "smooth", "smooth some", "smooth more", "evaluation"
  std::vector<Point> points;  // over steps
  bool dots = false;          // mark every point
  int run = -1;               // has its own colour among several runs; -1: one run alone
  std::function<double(double)> across = {};  // where a step stands on the axis; empty: at its number
};

struct Chart {
  std::string title;  // with its unit
  double width = 1060, height = 320;
  std::string attributes = {};  // of the <figure>, ready for the page
  Across across = Across::step;
  bool logarithmic = false;         // where all values are positive and spread enough
  bool always_logarithmic = false;  // where all values are positive
  bool from_zero = false;
  std::vector<Curve> curves;
};

// A <figure> with its title, legend and <svg>. Curves without points are left out; without any, the figure says so.
// A curve has its steps and values as data attributes, for the page's script to show under the pointer.
std::string svg_chart(const Chart& chart);

}  // namespace megatrain
