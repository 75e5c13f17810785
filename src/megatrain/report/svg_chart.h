// Curves over steps, tokens or time as SVG: axes with round ticks, a few hundred points per curve. The drawing
// stretches to the available width, so it never has to be redrawn.
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
  std::string style;          // CSS classes: "raw", "smooth", "smooth some", "smooth more", "evaluation"
  std::vector<Point> points;  // over steps
  bool dots = false;          // mark every point
  int run = -1;               // gives each of several runs its colour; -1: a single run
  std::function<double(double)> across = {};  // a step's position on the x axis; empty: its number
};

struct Chart {
  std::string title;  // with its unit
  double width = 1060, height = 320;
  std::string attributes = {};  // of the <figure>, already escaped
  Across across = Across::step;
  bool logarithmic = false;         // if all values are positive and spread widely enough
  bool always_logarithmic = false;  // if all values are positive
  bool from_zero = false;
  std::vector<Curve> curves;
};

// A <figure> with its title, legend and <svg>. Curves without points are left out; if none has points, the figure says
// so. Steps and values of a curve are data attributes, which the page's script shows under the pointer.
std::string svg_chart(const Chart& chart);

}  // namespace megatrain
