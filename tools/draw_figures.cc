// Draws the figures of the documentation with the report's own code.
//
//   draw_figures lanes TRACE.json OUT.svg                       a run's lanes.json, or trace.json of bench step --trace
//   draw_figures losses OUT.svg NAME=METRICS.jsonl NAME=…       one curve each, from lines with "step" and "loss"
//   draw_figures differences OUT.svg NAME=METRICS.jsonl NAME=…  smoothed curves, and how each differs from the first
#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/report/report_style.h"
#include "megatrain/report/svg_chart.h"
#include "megatrain/report/svg_lanes.h"

namespace {

using namespace megatrain;

constexpr double kWidth = 1060, kHead = 34, kMargin = 12, kLetter = 6.9;
constexpr double kChartLeft = 58, kLanesLeft = 74, kRight = 14;  // the padding from the page's style
constexpr double kSmoothedSteps = 20;

// Styles for further curves; the report's charts have only two colours.
const char* const kCurveStyle =
    ".curve.third { stroke: var(--green); } .curve.fourth { stroke: var(--red); }\n"
    ".curve.fifth { stroke: var(--backward); } .curve.sixth { stroke: var(--other); }\n";
const char* const kCurveStyles[] = {"", "evaluation", "third", "fourth", "fifth", "sixth"};

struct Panel {
  std::string title;
  std::string figure;  // a <figure> of the report
};

double height_of(const Panel& panel) {
  const std::regex view("<svg class=\"[a-z]+\"[^>]* height=\"([0-9.]+)\"");
  std::smatch height;
  ensure(std::regex_search(panel.figure, height, view), "a figure has a height");
  return std::stod(height[1]) + kHead;
}

// Draws the title and the legend, which are outside the <svg> of a <figure>, above the chart.
std::string draw_panel(const Panel& panel) {
  const std::regex key("<i class=\"([^\"]*)\"></i>([^<]*)");
  std::string head = fmt::format("<text class=\"lane\" x=\"0\" y=\"14\">{}</text>", panel.title);
  double x = static_cast<double>(panel.title.size()) * kLetter + 30;
  for (std::sregex_iterator it(panel.figure.begin(), panel.figure.end(), key), end; it != end; ++it) {
    const std::string style = (*it)[1], name = (*it)[2];
    const bool box = style.starts_with("box");
    head += box ? fmt::format("<rect class=\"{}\" x=\"{:.0f}\" y=\"5\" width=\"10\" height=\"10\"/>", style, x)
                : fmt::format("<line class=\"curve {}\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"10\" y2=\"10\"/>", style, x,
                              x + 14);
    head += fmt::format("<text x=\"{:.0f}\" y=\"14\">{}</text>", x + 18, name);
    x += 32 + static_cast<double>(name.size()) * kLetter;
  }
  const size_t begin = panel.figure.find('>', panel.figure.find("<svg")) + 1, end = panel.figure.rfind("</svg>");
  const double left = panel.figure.find("<svg class=\"lanes\"") == std::string::npos ? kChartLeft : kLanesLeft;
  return fmt::format("{}\n<svg x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">{}</svg>\n", head, left, kHead,
                     kWidth - left - kRight, height_of(panel) - kHead, panel.figure.substr(begin, end - begin));
}

// An SVG file with the panels one below the other.
std::string standalone(const std::vector<Panel>& panels) {
  std::string drawn;
  double y = 0;
  for (const Panel& panel : panels) {
    drawn += fmt::format("<g transform=\"translate(0 {})\">{}</g>\n", y, draw_panel(panel));
    y += height_of(panel);
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{} 0 {} {:.0f}\" font-family=\"sans-serif\">\n<style>{}{}"
      "</style>\n<rect x=\"{}\" y=\"0\" width=\"{}\" height=\"{:.0f}\" style=\"fill: var(--page)\"/>\n{}</svg>\n",
      -kMargin, kWidth + 2 * kMargin, y, kReportStyle, kCurveStyle, -kMargin, kWidth + 2 * kMargin, y, drawn);
}

void draw_lanes(const std::string& trace, const std::string& out) {
  const LaneTracks tracks = read_lanes(read_json_file(trace), trace);
  write_text_file(out, standalone({{"One step", svg_lanes(tracks)}}));
}

// A curve for each NAME=METRICS.jsonl.
std::vector<Curve> read_curves(const std::vector<std::string>& words) {
  if (words.size() > std::size(kCurveStyles))
    fail_input(fmt::format("{} curves, and there are styles for {}", words.size(), std::size(kCurveStyles)));
  std::vector<Curve> curves;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    Curve curve{.name = word.substr(0, equals), .style = kCurveStyles[curves.size()]};
    const std::string path = word.substr(equals + 1);
    std::ifstream file(path);
    if (!file) fail_input(fmt::format("{} cannot be read", path));
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json step = nlohmann::json::parse(line);
      curve.points.push_back({step.at("step").get<double>(), step.at("loss").get<double>()});
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

void draw_losses(const std::string& out, const std::vector<std::string>& words) {
  const Chart chart{.title = "Loss", .curves = read_curves(words)};
  write_text_file(out, standalone({{chart.title, svg_chart(chart)}}));
}

// The loss of every step minus that of the same step of `reference`.
std::vector<Point> less(const Curve& curve, const Curve& reference) {
  if (curve.points.size() != reference.points.size())
    fail_input(fmt::format("{} has {} steps and {} has {}", curve.name, curve.points.size(), reference.name,
                           reference.points.size()));
  std::vector<Point> points = curve.points;
  for (size_t i = 0; i < points.size(); ++i) points[i].y -= reference.points[i].y;
  return points;
}

void draw_differences(const std::string& out, const std::vector<std::string>& words) {
  Chart losses{.title = fmt::format("Loss, smoothed over {} steps", kSmoothedSteps), .curves = read_curves(words)};
  const std::string& first = losses.curves.front().name;
  Chart differences{.title = fmt::format("Difference from {}, smoothed", first), .curves = losses.curves};
  for (Curve& curve : differences.curves) curve.points = smoothed(less(curve, losses.curves.front()), kSmoothedSteps);
  for (Curve& curve : losses.curves) curve.points = smoothed(curve.points, kSmoothedSteps);
  write_text_file(out, standalone({{losses.title, svg_chart(losses)}, {differences.title, svg_chart(differences)}}));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 3 && words[0] == "lanes") {
      draw_lanes(words[1], words[2]);
    } else if (words.size() >= 3 && words[0] == "losses") {
      draw_losses(words[1], {words.begin() + 2, words.end()});
    } else if (words.size() >= 3 && words[0] == "differences") {
      draw_differences(words[1], {words.begin() + 2, words.end()});
    } else {
      std::fprintf(stderr,
                   "usage: draw_figures lanes TRACE.json OUT.svg | losses OUT.svg NAME=METRICS.jsonl ... | "
                   "differences OUT.svg NAME=METRICS.jsonl ...\n");
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
