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

constexpr double kTop = 10, kBottom = 34;
constexpr double kAcross = 1000;  // width of the plot in units, whatever its pixels

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool empty() const { return low > high; }
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

double place(const Curve& curve, const Point& p) { return curve.across ? curve.across(p.x) : p.x; }

std::string percent(double x) { return pixels(100 * x / kAcross) + "%"; }

std::string classes(const Curve& curve) {
  constexpr int kColours = 6;
  return curve.run < 0 ? curve.style : fmt::format("{} run{}", curve.style, curve.run % kColours);
}

// An attribute with a word for each point, separated by spaces.
template <class Word>
std::string attribute(const char* name, const std::vector<Point>& points, const Word& word) {
  std::string text;
  for (const Point& p : points) text += (text.empty() ? "" : " ") + word(p);
  return fmt::format(" {}=\"{}\"", name, text);
}

// For raw and smoothed curves the figure's title already says what they show.
std::string describe(const Curve& curve, const Point& p) {
  const bool titled = curve.run < 0 && curve.style != "evaluation";
  return fmt::format("{}step {}: {:.6g}", titled ? "" : curve.name + ", ", p.x, p.y);
}

struct Axes {
  Scale x, y;
  Across across;

  double level(const Point& p) const { return y(std::clamp(p.y, y.low, y.high)); }
};

std::string draw_curve(const Curve& curve, const std::vector<Point>& points, const Axes& axes) {
  std::string text =
      fmt::format("<polyline class=\"curve {}\" data-name=\"{}\"", classes(curve), escape_html(curve.name));
  text += attribute("data-steps", points, [](const Point& p) { return fmt::format("{:.0f}", p.x); });
  text += attribute("data-values", points, [](const Point& p) { return fmt::format("{:.6g}", p.y); });
  if (axes.across != Across::step) {
    text += attribute("data-at", points, [&](const Point& p) {
      return axes.across == Across::time ? clock_time(place(curve, p)) : short_number(place(curve, p));
    });
  }
  text += attribute("points", points,
                    [&](const Point& p) { return pixels(axes.x(place(curve, p))) + "," + pixels(axes.level(p)); });
  return text + "/>\n";
}

// Draws what keeps its shape at any width: dots, and marks for values beyond the axis.
std::string draw_marks(const Curve& curve, const std::vector<Point>& points, const Axes& axes) {
  std::string text;
  for (const Point& p : points) {
    const std::string at = percent(axes.x(place(curve, p)));
    if (curve.dots || points.size() == 1)
      text += fmt::format("<circle class=\"dot {}\" cx=\"{}\" cy=\"{}\" r=\"3\"/>\n", classes(curve), at,
                          pixels(axes.level(p)));
    if (p.y >= axes.y.low && p.y <= axes.y.high) continue;
    const bool above = p.y > axes.y.high;
    text += fmt::format(
        "<svg x=\"{}\" y=\"{}\"><path class=\"beyond {}\" d=\"M0,0 l4,{} h-8 z\"><title>{}</title></path></svg>\n", at,
        pixels(above ? axes.y.to : axes.y.from), classes(curve), above ? 7 : -7, escape_html(describe(curve, p)));
  }
  return text;
}

// The range of the curves' usual values, for a logarithmic or linear axis.
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

// Describes the values that are beyond the axis.
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

// Adds space above and below the curves; a flat curve is centred.
void widen(Range& range, bool logarithmic, bool from_zero) {
  if (logarithmic) {
    const double room = std::max(1.02, std::pow(range.high / range.low, 0.05));
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

// A single curve needs no legend, because the title names it. With several runs, a raw curve has a key only if
// smoothing is off, as it has the same colour as its run's smoothed curve.
std::string legend(const std::vector<Curve>& curves) {
  const auto drawn = [](const Curve& curve) { return !curve.points.empty(); };
  if (std::count_if(curves.begin(), curves.end(), drawn) < 2) return "";
  std::string text;
  for (const Curve& curve : curves) {
    const bool rarely = curve.run >= 0 && curve.style == "raw";
    if (drawn(curve))
      text += fmt::format("<span class=\"key {}{}\"><i class=\"{}\"></i>{}</span>", curve.style, rarely ? " off" : "",
                          classes(curve), escape_html(curve.name));
  }
  return text;
}

std::vector<Tick> ticks_across(const Scale& x, Across across, int count) {
  switch (across) {
    case Across::step: return whole_ticks(x.low, x.high, count);
    case Across::tokens: return linear_ticks(x.low, x.high, count);
    case Across::time: return clock_ticks(x.high, count);
  }
  return {};
}

// If there are many ticks on the x axis, every second one is "fine": narrow pages leave it out.
std::string draw_axes(const Chart& chart, const Axes& axes) {
  std::string text;
  const int rows = std::max(3, static_cast<int>(chart.height / 55)), columns = static_cast<int>(chart.width / 110);
  const Scale &x = axes.x, &y = axes.y;
  for (const Tick& tick : y.logarithmic ? logarithmic_ticks(y.low, y.high) : linear_ticks(y.low, y.high, rows)) {
    const std::string at = pixels(y(tick.value));
    text += fmt::format(
        "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{}\" y2=\"{}\"/><text class=\"tick\" text-anchor=\"end\" "
        "x=\"-8\" y=\"{}\" dy=\".32em\">{}</text>\n",
        at, at, at, tick.label);
  }
  constexpr size_t kMany = 5;
  const std::vector<Tick> ticks = ticks_across(x, chart.across, columns);
  bool fine = false;
  for (const Tick& tick : ticks) {
    const std::string at = percent(x(tick.value));
    text += fmt::format(
        "<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/><text class=\"tick{}\" text-anchor=\"middle\" "
        "x=\"{}\" y=\"{}\">{}</text>\n",
        at, at, pixels(y.from), pixels(y.from + 4), fine ? " fine" : "", at, pixels(y.from + 17), tick.label);
    fine = !fine && ticks.size() > kMany;
  }
  const char* const name = chart.across == Across::time ? "time in steps" : across_name(chart.across);
  return text + fmt::format(
                    "<line class=\"axis\" x1=\"0\" x2=\"100%\" y1=\"{}\" y2=\"{}\"/><text class=\"tick\" "
                    "text-anchor=\"end\" x=\"100%\" y=\"{}\">{}</text>\n",
                    pixels(y.from), pixels(y.from), pixels(y.from + 30), name);
}

Axes axes_of(const Chart& chart, Range across, bool positive) {
  if (chart.across != Across::step) across.add(0);
  if (across.high == across.low) across.add(across.low + 1);
  const bool may_be = positive && (chart.logarithmic || chart.always_logarithmic);
  Range up = usual_values(chart.curves, may_be);
  const bool logarithmic = may_be && (chart.always_logarithmic || up.high / up.low > 30);
  widen(up, logarithmic, chart.from_zero);
  return {.x = {.low = across.low, .high = across.high, .from = 0, .to = kAcross},
          .y = {.low = up.low, .high = up.high, .from = chart.height - kBottom, .to = kTop, .logarithmic = logarithmic},
          .across = chart.across};
}

}  // namespace

const char* across_name(Across across) {
  switch (across) {
    case Across::step: return "step";
    case Across::tokens: return "tokens";
    case Across::time: return "time";
  }
  return "?";
}

std::string svg_chart(const Chart& chart) {
  Range across;
  bool positive = true;
  for (const Curve& curve : chart.curves) {
    for (const Point& p : curve.points) {
      across.add(place(curve, p));
      positive = positive && p.y > 0;
    }
  }
  std::string text = fmt::format("<figure{}><figcaption>{}<span class=\"keys\">{}</span></figcaption>\n",
                                 chart.attributes, escape_html(chart.title), legend(chart.curves));
  if (across.empty()) return text + "<p class=\"none\">nothing yet</p></figure>\n";
  const Axes axes = axes_of(chart, across, positive);
  text += fmt::format(
      "<svg class=\"chart\" role=\"img\" aria-label=\"{}\" height=\"{}\" data-x=\"{:.17g} {:.17g} {} {}\" "
      "data-y=\"{:.17g} {:.17g} {} {}\" data-log=\"{:d}\">\n",
      escape_html(chart.title), chart.height, axes.x.low, axes.x.high, pixels(axes.x.from), pixels(axes.x.to),
      axes.y.low, axes.y.high, pixels(axes.y.from), pixels(axes.y.to), axes.y.logarithmic);
  text += draw_axes(chart, axes);
  std::string plot, marks;
  for (const Curve& curve : chart.curves) {
    if (curve.points.empty()) continue;
    const bool raw = curve.style == "raw";
    const std::vector<Point> points = thin_out(curve.points, static_cast<size_t>(chart.width * (raw ? 0.4 : 0.2)));
    plot += draw_curve(curve, points, axes);
    marks += draw_marks(curve, points, axes);
  }
  text += fmt::format(
      "<svg class=\"plot\" width=\"100%\" height=\"{}\" viewBox=\"0 0 {} {}\" "
      "preserveAspectRatio=\"none\">\n{}</svg>\n{}",
      chart.height, kAcross, chart.height, plot, marks);
  text += fmt::format("<line class=\"cursor\" y1=\"{}\" y2=\"{}\" visibility=\"hidden\"/>", kTop, pixels(axes.y.from));
  return text + "</svg>" + beyond(chart.curves, axes.y) + "</figure>\n";
}

}  // namespace megatrain
