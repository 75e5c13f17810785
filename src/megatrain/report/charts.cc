#include "megatrain/report/charts.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/report/usual_range.h"

namespace megatrain {

namespace {

constexpr size_t kFewPoints = 20;     // a curve of fewer points needs no smoothing
constexpr size_t kManyPoints = 4000;  // most points to smooth: a live page is redrawn every second

struct Metric {
  const char* name;  // as in metrics.jsonl
  const char* title;
  const char* curve;
  double RunStep::*value;
  bool logarithmic = false, from_zero = false;
  bool plain = false;  // has no noise
};
constexpr Metric kLoss = {"loss", "Loss (nats a token)", "training", &RunStep::loss};
constexpr Metric kOthers[] = {
    {"lr", "Learning rate", "learning rate", &RunStep::lr, false, true, true},
    {"grad_norm", "Gradient norm", "before clipping", &RunStep::grad_norm, true},
    {"tokens_per_s", "Speed (tokens/s)", "tokens/s", &RunStep::tokens_per_s, false, true},
    {"seconds", "Time of a step (s)", "seconds", &RunStep::seconds, true, true},
};

// Cumulative tokens and seconds at each step of a run.
class Progress {
 public:
  explicit Progress(const std::vector<RunStep>& steps) {
    double tokens = 0, seconds = 0;
    for (const RunStep& step : steps) {
      steps_.push_back(static_cast<double>(step.step));
      tokens_.push_back(tokens += static_cast<double>(step.tokens));
      seconds_.push_back(seconds += step.seconds);
    }
  }

  // At the step, or at the next one that the run has logged.
  double at(double step, Across across) const {
    if (across == Across::step || steps_.empty()) return step;
    const auto found = std::lower_bound(steps_.begin(), steps_.end() - 1, step) - steps_.begin();
    return (across == Across::tokens ? tokens_ : seconds_)[static_cast<size_t>(found)];
  }

 private:
  std::vector<double> steps_, tokens_, seconds_;
};

std::vector<Point> points_of(const std::vector<RunStep>& steps, double RunStep::*value) {
  std::vector<Point> points;
  points.reserve(steps.size());
  for (const RunStep& step : steps) {
    if (std::isfinite(step.*value)) points.push_back({static_cast<double>(step.step), step.*value});
  }
  return points;
}

// Adds the raw curve and, for a noisy metric, two smoothed ones, of which the page shows one.
void add_curves(const Metric& metric, const RunHistory& history, const std::string& name, int run,
                std::vector<Curve>& curves) {
  std::vector<Point> points = points_of(history.steps, metric.value);
  if (metric.plain || points.size() < kFewPoints) {
    curves.push_back({.name = name, .style = "smooth", .points = std::move(points), .run = run});
    return;
  }
  const std::string smooth = run < 0 ? "smoothed" : name + ", smoothed";
  const std::vector<Point> usual = neighbour_means(usual_points(points, metric.logarithmic), kManyPoints);
  const double steps = points.back().x - points.front().x + 1;
  curves.push_back({.name = name, .style = "raw", .points = std::move(points), .run = run});
  curves.push_back({smooth, "smooth some", smoothed(usual, smoothing_half_width(steps)), false, run});
  curves.push_back({smooth, "smooth more", smoothed(usual, wide_smoothing_half_width(steps)), false, run});
}

void add_evaluations(const RunHistory& history, const std::string& name, int run, std::vector<Curve>& curves) {
  Curve evaluation{.name = run < 0 ? "evaluation" : name + ", evaluation",
                   .style = "evaluation",
                   .dots = history.evaluations.size() <= 100,
                   .run = run};
  for (const RunEvaluation& e : history.evaluations) {
    if (std::isfinite(e.loss)) evaluation.points.push_back({static_cast<double>(e.step), e.loss});
  }
  curves.push_back(std::move(evaluation));
}

std::vector<Curve> curves_of(const Metric& metric, const std::vector<const ReportData*>& runs) {
  std::vector<Curve> curves;
  for (size_t i = 0; i < runs.size(); ++i) {
    const int run = runs.size() > 1 ? static_cast<int>(i) : -1;
    const std::string name = run < 0 ? metric.curve : runs[i]->name();
    add_curves(metric, runs[i]->history, name, run, curves);
    if (&metric == &kLoss) add_evaluations(runs[i]->history, name, run, curves);
  }
  return curves;
}

// The figures of one metric, one for each choice. Only the loss has two kinds of axis.
std::string figures_of(const Metric& metric, const std::vector<const ReportData*>& runs,
                       const std::vector<Progress>& progress, const std::vector<ChartChoice>& choices) {
  const bool loss = &metric == &kLoss;
  Chart chart{.title = metric.title,
              .width = loss ? 1060.0 : 520.0,
              .height = loss ? 320.0 : 240.0,
              .logarithmic = metric.logarithmic,
              .from_zero = metric.from_zero,
              .curves = curves_of(metric, runs)};
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) {
    const ChartChoice& choice = choices[i];
    if (i > 0 && !loss && choice.logarithmic_loss) continue;
    for (Curve& curve : chart.curves) {
      const Progress& of = progress[static_cast<size_t>(std::max(curve.run, 0))];
      curve.across = [&of, across = choice.across](double step) { return of.at(step, across); };
    }
    chart.across = choice.across;
    chart.always_logarithmic = loss && choice.logarithmic_loss;
    chart.attributes = fmt::format(
        " data-metric=\"{}\" data-across=\"{}\"{}{}", metric.name, across_name(choice.across),
        loss ? fmt::format(" data-axis-log=\"{:d}\"", choice.logarithmic_loss) : "", i > 0 ? " hidden" : "");
    text += svg_chart(chart);
  }
  return text;
}

}  // namespace

std::vector<ChartChoice> all_chart_choices() {
  std::vector<ChartChoice> choices;
  for (const bool logarithmic : {false, true}) {
    for (const Across across : {Across::step, Across::tokens, Across::time}) choices.push_back({across, logarithmic});
  }
  return choices;
}

std::string charts(const std::vector<const ReportData*>& runs, const std::vector<ChartChoice>& choices) {
  std::vector<Progress> progress;
  for (const ReportData* run : runs) progress.emplace_back(run->history.steps);
  std::string text = "<div id=\"charts\">\n" + figures_of(kLoss, runs, progress, choices) + "<div class=\"pair\">\n";
  for (const Metric& metric : kOthers) text += figures_of(metric, runs, progress, choices);
  return text + "</div></div>\n";
}

}  // namespace megatrain
