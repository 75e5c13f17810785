// The figures of README.md, drawn by the report's own code.
//
//   draw_figures lanes TRACE.json OUT.svg                       a run's lanes.json, or trace.json of bench step --trace
//   draw_figures losses OUT.svg NAME=METRICS.jsonl NAME=…       one curve each, from lines with "step" and "loss"
#include <cstdio>
#include <fstream>
#include <regex>
#include <string>

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

// A <figure> of the report as an SVG file of its own: the legend becomes part of the drawing.
std::string standalone(const std::string& figure, const std::string& title) {
  constexpr double kWidth = 1060, kHead = 34, kMargin = 12, kLetter = 6.9;
  const std::regex key("<i class=\"([^\"]*)\"></i>([^<]*)"), view("viewBox=\"0 0 1060 ([0-9.]+)\"");
  std::smatch height;
  ensure(std::regex_search(figure, height, view), "a figure has a height");
  std::string head = fmt::format("<text class=\"lane\" x=\"0\" y=\"14\">{}</text>", title);
  double x = static_cast<double>(title.size()) * kLetter + 30;
  for (std::sregex_iterator it(figure.begin(), figure.end(), key), end; it != end; ++it) {
    const std::string style = (*it)[1], name = (*it)[2];
    const bool box = style.starts_with("box");
    head += box ? fmt::format("<rect class=\"{}\" x=\"{:.0f}\" y=\"5\" width=\"10\" height=\"10\"/>", style, x)
                : fmt::format("<line class=\"curve {}\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"10\" y2=\"10\"/>", style, x,
                              x + 14);
    head += fmt::format("<text x=\"{:.0f}\" y=\"14\">{}</text>", x + 18, name);
    x += 32 + static_cast<double>(name.size()) * kLetter;
  }
  const size_t begin = figure.find('>', figure.find("<svg")) + 1, end = figure.rfind("</svg>");
  const double whole = std::stod(height[1]) + kHead;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{} 0 {} {:.0f}\" font-family=\"sans-serif\">\n<style>{}"
      "</style>\n<rect x=\"{}\" y=\"0\" width=\"{}\" height=\"{:.0f}\" style=\"fill: var(--page)\"/>\n{}\n"
      "<g transform=\"translate(0 {})\">{}</g>\n</svg>\n",
      -kMargin, kWidth + 2 * kMargin, whole, kReportStyle, -kMargin, kWidth + 2 * kMargin, whole, head, kHead,
      figure.substr(begin, end - begin));
}

void draw_lanes(const std::string& trace, const std::string& out) {
  const LaneTracks tracks = read_lanes(read_json_file(trace), trace);
  write_text_file(out, standalone(svg_lanes(tracks), "One step"));
}

void draw_losses(const std::string& out, const std::vector<std::string>& curves) {
  static const char* const kStyles[] = {"", "evaluation", "raw"};
  Chart chart{.title = "Loss"};
  for (const std::string& word : curves) {
    const size_t equals = word.find('=');
    Curve curve{.name = word.substr(0, equals), .style = kStyles[chart.curves.size() % 3]};
    std::ifstream file(word.substr(equals + 1));
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json step = nlohmann::json::parse(line);
      curve.points.push_back({step.at("step").get<double>(), step.at("loss").get<double>()});
    }
    chart.curves.push_back(std::move(curve));
  }
  write_text_file(out, standalone(svg_chart(chart), chart.title));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 3 && words[0] == "lanes") {
      draw_lanes(words[1], words[2]);
    } else if (words.size() >= 3 && words[0] == "losses") {
      draw_losses(words[1], {words.begin() + 2, words.end()});
    } else {
      std::fprintf(stderr, "usage: draw_figures lanes TRACE.json OUT.svg | losses OUT.svg NAME=METRICS.jsonl ...\n");
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
