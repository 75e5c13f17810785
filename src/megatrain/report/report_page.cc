#include "megatrain/report/report_page.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/units.h"
#include "megatrain/report/html.h"
#include "megatrain/report/report_style.h"
#include "megatrain/report/svg_axis.h"
#include "megatrain/report/svg_chart.h"

namespace megatrain {

namespace {

constexpr double kSmall = 520;  // width of one of two charts in a row

// Of steps; a curve of few points needs no smoothing.
double smoothing_window(size_t points) { return std::clamp(static_cast<double>(points) / 40, 5.0, 200.0); }
constexpr size_t kFewPoints = 20;

template <class Value>
std::vector<Point> curve_of(const RunHistory& history, const Value& value) {
  std::vector<Point> points;
  for (const RunStep& step : history.steps) points.push_back({static_cast<double>(step.step), value(step)});
  return points;
}

std::vector<Curve> raw_and_smooth(const std::string& name, const std::vector<Point>& points) {
  if (points.size() < kFewPoints) return {{.name = name, .style = "smooth", .points = points}};
  const double window = smoothing_window(points.size());
  return {{.name = name, .style = "raw", .points = points},
          {.name = fmt::format("smoothed over {:.0f} steps", window),
           .style = "smooth",
           .points = smoothed(points, window)}};
}

std::string card(const std::string& name, const std::string& value, const std::string& note) {
  return fmt::format("<div class=\"card\"><h2>{}</h2><b>{}</b><span>{}</span></div>\n", escape_html(name),
                     escape_html(value), escape_html(note));
}

std::string header(const ReportData& d) {
  const int64_t step = d.history.steps.empty() ? 0 : d.history.steps.back().step;
  std::string about = d.architecture;
  if (d.parameters > 0)
    about += fmt::format(
        "{}{} parameters{}", about.empty() ? "" : ", ", format_count(d.parameters),
        d.active_parameters == d.parameters ? "" : fmt::format(" ({} active)", format_count(d.active_parameters)));
  if (!d.machine.empty()) about += (about.empty() ? "" : " · ") + d.machine;
  const int64_t percent = d.steps > 0 ? 100 * step / d.steps : 100;
  return fmt::format("<header><h1>{}</h1><p>{}</p><p><span class=\"state {}\">{}</span> step {} of {}{}</p></header>\n",
                     escape_html(std::filesystem::path(d.run).filename().string()), escape_html(about),
                     d.complete ? "complete" : "going", d.complete ? "complete" : "not complete", step, d.steps,
                     d.complete ? "" : fmt::format(" ({}%)", percent));
}

std::string cards(const ReportData& d) {
  const RunHistory& h = d.history;
  if (h.steps.empty()) return "<p class=\"none\">The run has not told of a step yet.</p>\n";
  const RunStep& last = h.steps.back();
  std::string text = "<section class=\"cards\">\n";
  text += card(d.complete ? "Final loss" : "Loss now", fmt::format("{:.4f}", last.loss),
               fmt::format("{:.4f} at step {}", h.steps.front().loss, h.steps.front().step));
  if (const RunEvaluation* best = h.best_evaluation())
    text += card("Best evaluation loss", fmt::format("{:.4f}", best->loss),
                 fmt::format("at step {}, perplexity {:.4g}", best->step, std::exp(best->loss)));
  text += card("Tokens", short_number(static_cast<double>(h.tokens())),
               fmt::format("{} a step", short_number(static_cast<double>(last.tokens))));
  text += card("Tokens/s", short_number(h.tokens_per_s()), fmt::format("the last step bound by {}", last.bound_by));
  const double step_s = h.seconds() / static_cast<double>(h.steps.size());
  const int64_t left = d.steps - last.step;
  text += card("Time", format_duration(h.seconds()),
               d.complete || left <= 0
                   ? fmt::format("{:.3g} s a step", step_s)
                   : fmt::format("about {} to go", format_duration(step_s * static_cast<double>(left))));
  int64_t hbm = 0, host = 0;
  for (const RunStep& step : h.steps) {
    hbm = std::max(hbm, step.hbm_peak);
    host = std::max(host, step.host_peak);
  }
  text += card("Peak memory", format_bytes(hbm), fmt::format("on the device; {} on the host", format_bytes(host)));
  return text + "</section>\n";
}

std::string curves(const ReportData& d) {
  const RunHistory& h = d.history;
  Chart loss{.title = "Loss (nats a token)",
             .curves = raw_and_smooth("training", curve_of(h, [](const RunStep& s) { return s.loss; }))};
  Curve evaluation{.name = "evaluation", .style = "evaluation", .dots = h.evaluations.size() <= 100};
  for (const RunEvaluation& e : h.evaluations) evaluation.points.push_back({static_cast<double>(e.step), e.loss});
  loss.curves.push_back(std::move(evaluation));
  Chart rate{.title = "Learning rate", .width = kSmall, .height = 240, .from_zero = true};
  rate.curves = {
      {.name = "learning rate", .style = "smooth", .points = curve_of(h, [](const RunStep& s) { return s.lr; })}};
  Chart norm{.title = "Gradient norm", .width = kSmall, .height = 240, .logarithmic = true};
  norm.curves = raw_and_smooth("before clipping", curve_of(h, [](const RunStep& s) { return s.grad_norm; }));
  Chart speed{.title = "Speed (tokens/s)", .width = kSmall, .height = 240, .from_zero = true};
  speed.curves = raw_and_smooth("tokens/s", curve_of(h, [](const RunStep& s) { return s.tokens_per_s; }));
  Chart time{.title = "Time of a step (s)", .width = kSmall, .height = 240, .logarithmic = true, .from_zero = true};
  time.curves = raw_and_smooth("seconds", curve_of(h, [](const RunStep& s) { return s.seconds; }));
  std::string text = svg_chart(loss) + "<div class=\"pair\">\n";
  for (const Chart* chart : {&rate, &norm, &speed, &time}) text += svg_chart(*chart);
  return text + "</div>\n";
}

std::string memory(const ReportData& d) {
  int64_t largest = 0;
  for (const TierMemory& tier : d.memory) {
    int64_t planned = 0;
    for (const auto& [tag, bytes] : tier.planned) planned += bytes;
    largest = std::max({largest, planned, tier.peak});
  }
  if (largest == 0) return "";
  std::string text = "<h2>Memory by tier</h2>\n";
  if (d.aliased)
    text += "<p>The device is the CPU: its memory is host memory too, so the host's peak holds both.</p>\n";
  for (const TierMemory& tier : d.memory) text += svg_memory(tier, largest);
  return text;
}

std::string samples(const ReportData& d) {
  constexpr size_t kShown = 40;
  if (d.history.samples.empty()) return "";
  std::vector<RunSample> newest(d.history.samples.rbegin(), d.history.samples.rend());
  std::stable_sort(newest.begin(), newest.end(),
                   [](const RunSample& a, const RunSample& b) { return a.step > b.step; });
  std::string text = "<h2>Samples</h2>\n";
  if (newest.size() > kShown) {
    text += fmt::format("<p>The newest {} of {}; samples.jsonl has all.</p>\n", kShown, newest.size());
    newest.resize(kShown);
  }
  for (const RunSample& sample : newest)
    text += fmt::format("<article><h3>step {}</h3><pre class=\"prompt\">{}</pre><pre>{}</pre></article>\n", sample.step,
                        escape_html(sample.prompt), escape_html(sample.text));
  return text;
}

}  // namespace

std::string report_page(const ReportData& d) {
  std::string text = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" "
      "content=\"light dark\">\n<title>{} · megatrain</title>\n<style>{}</style></head>\n<body><main>\n",
      escape_html(std::filesystem::path(d.run).filename().string()), kReportStyle);
  text += header(d) + cards(d);
  if (!d.history.steps.empty()) text += "<h2>Training</h2>\n" + curves(d);
  if (d.lanes) text += "<h2>Where a step's time goes</h2>\n" + svg_lanes(*d.lanes);
  text += memory(d) + samples(d);
  text += fmt::format("<h2>Configuration</h2>\n<pre class=\"config\">{}</pre>\n", escape_html(d.configuration));
  return text + fmt::format("</main><div id=\"tip\" hidden></div>\n<script>{}</script></body></html>\n", kReportScript);
}

}  // namespace megatrain
