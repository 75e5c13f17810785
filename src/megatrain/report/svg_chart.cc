#include "megatrain/report/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "megatrain/report/html.h"
#include "megatrain/report/svg_axis.h"
#include "megatrain/report/usual_range.h"

namespace megatrain {

namespace {

constexpr size_t kMostPoints = 400;
constexpr double kLeft = 58, kRight = 14, kTop = 10, kBottom = 34;

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool empty() const { return low > high; }
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::string path_of(const std::vector<Point>& points, const Scale& x, const Scale& y) {
  std::string text;
  for (const Point& p : points)
    text += fmt::format("{}{},{}", text.empty() ? "" : " ", pixels(x(p.x)), pixels(y(std::clamp(p.y, y.low, y.high))));
  return text;
}

// The title says what raw and smoothed curves are of.
std::string describe(const Curve& curve, const Point& p) {
  const bool titled = curve.style == "raw" || curve.style == "smooth";
  return fmt::format("{}step {}: {:.6g}", titled ? "" : curve.name + ", ", p.x, p.y);
}

std::string draw_curve(const Curve& curve, const Scale& x, const Scale& y) {
  const std::vector<Point> points = thin_out(curve.points, kMostPoints);
  std::string text = fmt::format("<polyline class=\"curve {}\" data-name=\"{}\" points=\"{}\"/>\n", curve.style,
                                 escape_html(curve.name), path_of(points, x, y));
  if (curve.dots || points.size() == 1) {
    for (const Point& p : points)
      text += fmt::format("<circle class=\"dot {}\" cx=\"{}\" cy=\"{}\" r=\"3\"/>\n", curve.style, pixels(x(p.x)),
                          pixels(y(std::clamp(p.y, y.low, y.high))));
  }
  for (const Point& p : points) {
    if (p.y >= y.low && p.y <= y.high) continue;
    const double at = x(p.x), edge = p.y > y.high ? y.to : y.from, inwards = p.y > y.high ? 7 : -7;
    text += fmt::format("<path class=\"beyond {}\" d=\"M{},{} l4,{} h-8 z\"><title>{}</title></path>\n", curve.style,
                        pixels(at), pixels(edge), inwards, escape_html(describe(curve, p)));
  }
  return text;
}

// What the curves have within their usual values, on an axis that may be logarithmic or not.
Range usual_values(const std::vector<Curve>& curves, bool logarithmic) {
  Range up;
  for (const Curve& curve : curves) {
    const ValueRange usual = usual_range(curve.points, logarithmic);
    for (const Point& p : curve.points) {
      if (usual.holds(p.y)) up.add(p.y);
    }
  }
  return up;
}

// Says in words which values the axis has no room for.
std::string beyond(const std::vector<Curve>& curves, const Scale& y) {
  int64_t count = 0;
  double farthest = 0;
  std::string which;
  for (const Curve& curve : curves) {
    for (const Point& p : curve.points) {
      const double far = std::max(p.y - y.high, y.low - p.y);
      if (!(far > 0)) continue;
      ++count;
      if (far <= farthest) continue;
      farthest = far;
      which = describe(curve, p);
    }
  }
  if (count == 0) return "";
  return fmt::format("<p class=\"beyond\">{} beyond the axis and drawn at its edge; {}{}</p>",
                     count == 1 ? "One value is" : fmt::format("{} values are", count),
                     count == 1 ? "" : "the farthest: ", escape_html(which));
}

// Room above and below the curves; a flat curve stands in the middle.
void widen(Range& range, bool logarithmic, bool from_zero) {
  if (logarithmic) {
    const double room = std::pow(range.high / range.low, 0.05);
    range = {range.low / room, range.high * room};
    return;
  }
  if (from_zero) range.low = std::min(range.low, 0.0);
  const double room = range.high > range.low ? 0.05 * (range.high - range.low)
                      : range.low != 0       ? 0.1 * std::abs(range.low)
                                             : 1.0;
  const bool at_zero = range.low == 0;
  range = {at_zero ? 0 : range.low - room, range.high + room};
}

// Of one curve alone the title says enough.
std::string legend(const std::vector<Curve>& curves) {
  const auto drawn = [](const Curve& curve) { return !curve.points.empty(); };
  if (std::count_if(curves.begin(), curves.end(), drawn) < 2) return "";
  std::string text;
  for (const Curve& curve : curves) {
    if (drawn(curve))
      text += fmt::format("<span class=\"key\"><i class=\"{}\"></i>{}</span>", curve.style, escape_html(curve.name));
  }
  return text;
}

}  // namespace

std::string svg_chart(const Chart& chart) {
  Range across;
  bool positive = true;
  for (const Curve& curve : chart.curves) {
    for (const Point& p : curve.points) {
      across.add(p.x);
      positive = positive && p.y > 0;
    }
  }
  std::string head = fmt::format("<figure{}><figcaption>{}<span class=\"keys\">{}</span></figcaption>\n",
                                 chart.metric.empty() ? "" : fmt::format(" data-metric=\"{}\"", chart.metric),
                                 escape_html(chart.title), legend(chart.curves));
  if (across.empty()) return head + "<p class=\"none\">nothing yet</p></figure>\n";
  if (across.high == across.low) across.add(across.low + 1);
  Range up = usual_values(chart.curves, chart.logarithmic && positive);
  const bool logarithmic = chart.logarithmic && positive && up.high / up.low > 30;
  widen(up, logarithmic, chart.from_zero);
  const Scale x{.low = across.low, .high = across.high, .from = kLeft, .to = chart.width - kRight};
  const Scale y{.low = up.low, .high = up.high, .from = chart.height - kBottom, .to = kTop, .logarithmic = logarithmic};

  std::string text = head;
  text += fmt::format(
      "<svg class=\"chart\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} {}\" data-x=\"{:.17g} {:.17g} {} {}\" "
      "data-y=\"{:.17g} {:.17g} {} {}\" data-log=\"{:d}\">\n",
      escape_html(chart.title), chart.width, chart.height, x.low, x.high, pixels(x.from), pixels(x.to), y.low, y.high,
      pixels(y.from), pixels(y.to), logarithmic);
  const int rows = std::max(3, static_cast<int>(chart.height / 55)), columns = static_cast<int>(chart.width / 110);
  for (const Tick& tick : logarithmic ? logarithmic_ticks(y.low, y.high) : linear_ticks(y.low, y.high, rows)) {
    const std::string at = pixels(y(tick.value));
    text += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/><text class=\"tick\" text-anchor=\"end\" "
        "x=\"{}\" y=\"{}\" dy=\".32em\">{}</text>\n",
        pixels(x.from), pixels(x.to), at, at, pixels(x.from - 8), at, tick.label);
  }
  for (const Tick& tick : whole_ticks(x.low, x.high, columns)) {
    const std::string at = pixels(x(tick.value));
    text += fmt::format(
        "<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/><text class=\"tick\" text-anchor=\"middle\" "
        "x=\"{}\" y=\"{}\">{}</text>\n",
        at, at, pixels(y.from), pixels(y.from + 4), at, pixels(y.from + 17), tick.label);
  }
  text += fmt::format("<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>", pixels(x.from), pixels(x.to),
                      pixels(y.from), pixels(y.from));
  text += fmt::format("<text class=\"tick\" text-anchor=\"end\" x=\"{}\" y=\"{}\">step</text>\n", pixels(x.to),
                      pixels(y.from + 30));
  for (const Curve& curve : chart.curves) {
    if (!curve.points.empty()) text += draw_curve(curve, x, y);
  }
  return text + "</svg>" + beyond(chart.curves, y) + "</figure>\n";
}

}  // namespace megatrain
