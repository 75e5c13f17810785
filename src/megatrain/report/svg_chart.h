// Curves over steps as SVG: axes with round ticks, at most a thousand points a curve.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

struct Point {
  double x = 0, y = 0;
};

// At most `limit` points, the first, the last and the extremes of every stretch among them.
std::vector<Point> thin_out(const std::vector<Point>& points, size_t limit);

// A mean in which a point weighs less the older it is, over about `window` points.
std::vector<Point> smoothed(const std::vector<Point>& points, double window);

struct Curve {
  std::string name;
  std::string style;  // a class of the page: "raw", "smooth", "evaluation"
  std::vector<Point> points;
  bool dots = false;  // mark every point
};

struct Chart {
  std::string title;  // with its unit
  double width = 1060, height = 320;
  bool logarithmic = false;  // where all values are positive and spread enough
  bool from_zero = false;
  std::vector<Curve> curves;
};

// A <figure> with its title, legend and <svg>. Curves without points are left out; without any, the figure says so.
std::string svg_chart(const Chart& chart);

}  // namespace megatrain
