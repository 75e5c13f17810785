#include "megatrain/watch/screen.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "megatrain/base/escape.h"
#include "megatrain/base/units.h"
#include "megatrain/report/svg_axis.h"
#include "megatrain/report/usual_range.h"
#include "megatrain/watch/braille.h"

namespace megatrain {

namespace {

using Lines = std::vector<std::string>;

constexpr int kDim = 2, kBold = 1, kRed = 31, kGreen = 32, kYellow = 33, kBlue = 34, kMagenta = 35, kCyan = 36;

class Paint {
 public:
  explicit Paint(bool colour) : colour_(colour) {}
  std::string operator()(int code, const std::string& text) const {
    return colour_ && !text.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  }

 private:
  bool colour_;
};

struct MetricAbout {
  const char* title;
  double RunStep::*value;
};
MetricAbout about_metric(CurveMetric metric) {
  switch (metric) {
    case CurveMetric::loss: return {"loss", &RunStep::loss};
    case CurveMetric::grad_norm: return {"gradient norm", &RunStep::grad_norm};
    case CurveMetric::lr: return {"learning rate", &RunStep::lr};
    case CurveMetric::tokens_per_s: return {"tokens/s", &RunStep::tokens_per_s};
    case CurveMetric::seconds: break;
  }
  return {"seconds a step", &RunStep::seconds};
}

const char* axis_name(CurveAxis axis) {
  return axis == CurveAxis::steps ? "steps" : axis == CurveAxis::tokens ? "tokens" : "time";
}

std::vector<Point> points_of(const RunHistory& history, const ScreenChoice& choice) {
  std::vector<Point> points;
  double tokens = 0, time = 0;
  for (const RunStep& step : history.steps) {
    tokens += static_cast<double>(step.tokens);
    time += step.seconds;
    const double y = step.*about_metric(choice.metric).value;
    const double x = choice.axis == CurveAxis::steps    ? static_cast<double>(step.step)
                     : choice.axis == CurveAxis::tokens ? tokens
                                                        : time;
    if (std::isfinite(y) && (!choice.logarithmic || y > 0)) points.push_back({x, y});
  }
  return points;
}

// Averages neighbouring points, so that a long run is drawn as fast as a short one.
std::vector<Point> means(const std::vector<Point>& points, size_t limit) {
  if (points.size() <= limit) return points;
  std::vector<Point> out;
  const size_t group = (points.size() + limit - 1) / limit;
  for (size_t begin = 0; begin < points.size(); begin += group) {
    const size_t end = std::min(begin + group, points.size());
    Point mean;
    for (size_t i = begin; i < end; ++i) {
      mean.x += points[i].x;
      mean.y += points[i].y;
    }
    out.push_back({mean.x / static_cast<double>(end - begin), mean.y / static_cast<double>(end - begin)});
  }
  return out;
}

std::string axis_text(double value, CurveAxis axis) {
  return axis == CurveAxis::time ? format_duration(value) : short_number(value);
}

Lines chart(const RunFollower& run, const ScreenChoice& choice, int width, int height, const Paint& paint) {
  constexpr int kLabels = 9, kFewPoints = 20;
  Lines lines;
  const std::vector<Point> all = points_of(run.data().history, choice);
  const std::string title =
      fmt::format("{}{} over {}{}", about_metric(choice.metric).title, choice.logarithmic ? " (log)" : "",
                  axis_name(choice.axis), choice.smooth && all.size() >= kFewPoints ? ", smoothed" : "");
  lines.push_back(paint(kBold, title));
  const int rows = height - 2, columns = width - kLabels - 1;
  if (all.empty() || rows < 1 || columns < 4) {
    if (all.empty()) lines.push_back(paint(kDim, "  no step yet"));
    lines.resize(static_cast<size_t>(std::max(height, 1)));
    return lines;
  }
  const std::vector<Point> raw = thin_out(all, 8 * static_cast<size_t>(columns));
  std::vector<Point> smooth;
  if (choice.smooth && all.size() >= kFewPoints) {
    smooth = means(usual_points(all, choice.logarithmic), std::min(2 * static_cast<size_t>(columns), kMostSmoothed));
    // Smooths by index: neighbours are evenly spaced over steps, whatever the axis shows.
    std::vector<Point> counted;
    for (size_t i = 0; i < smooth.size(); ++i) counted.push_back({static_cast<double>(i), smooth[i].y});
    const std::vector<Point> fitted = smoothed(counted, smoothing_half_width(static_cast<double>(counted.size())));
    for (size_t i = 0; i < smooth.size(); ++i) smooth[i].y = fitted[i].y;
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  const ValueRange usual = usual_range(raw, choice.logarithmic);
  for (const Point& p : raw) {
    if (!usual.holds(p.y)) continue;
    low = std::min(low, p.y);
    high = std::max(high, p.y);
  }
  if (choice.metric == CurveMetric::tokens_per_s && !choice.logarithmic) low = std::min(low, 0.0);
  if (high == low) {
    const double room = low == 0 ? 1 : 0.1 * std::abs(low);
    low -= room;
    high += room;
  }
  BrailleCanvas canvas(columns, rows);
  const double first = raw.front().x, last = std::max(raw.back().x, first + 1e-9);
  const Scale x{.low = first, .high = last, .from = 0, .to = canvas.dots_across() - 1.0};
  const Scale y{.low = low, .high = high, .from = canvas.dots_up() - 1.0, .to = 0, .logarithmic = choice.logarithmic};
  const auto placed = [&](const std::vector<Point>& points) {
    std::vector<Point> out;
    for (const Point& p : points) {
      if (!choice.logarithmic || p.y > 0) out.push_back({x(p.x), y(std::clamp(p.y, low, high))});
    }
    return out;
  };
  canvas.curve(placed(raw), smooth.empty() ? 2 : 1);
  canvas.curve(placed(smooth), 2);
  std::vector<std::string> labels(static_cast<size_t>(rows));
  for (const Tick& tick :
       choice.logarithmic ? logarithmic_ticks(low, high) : linear_ticks(low, high, std::max(2, rows / 3)))
    labels[static_cast<size_t>(std::clamp(static_cast<int>(y(tick.value)) / 4, 0, rows - 1))] =
        columns_of(tick.label) <= kLabels ? tick.label : fmt::format("{:.1e}", tick.value);
  for (int row = 0; row < rows; ++row) {
    std::string line = paint(kDim, fmt::format("{:>{}} ", labels[static_cast<size_t>(row)], kLabels));
    for (int column = 0; column < columns;) {
      const int rank = canvas.rank(column, row);
      std::string cells;
      for (; column < columns && canvas.rank(column, row) == rank; ++column) cells += canvas.cell(column, row);
      line += rank == 0 ? cells : paint(rank == 1 ? kDim : kCyan, cells);
    }
    lines.push_back(line);
  }
  const std::string left = axis_text(first, choice.axis), right = axis_text(last, choice.axis);
  lines.push_back(paint(kDim, fmt::format("{:>{}} {}{:>{}}", "", kLabels, left, right,
                                          std::max(0, columns - static_cast<int>(left.size())))));
  return lines;
}

int purpose_colour(const std::string& action) {
  const auto has = [&](const char* part) { return action.find(part) != std::string::npos; };
  return has("backward")              ? kMagenta
         : has("forward")             ? kBlue
         : has("head") || has("loss") ? kCyan
         : has("update")              ? kYellow
         : has("gradient")            ? kRed
                                      : kGreen;
}
char purpose_letter(const std::string& action) {
  switch (purpose_colour(action)) {
    case kMagenta: return 'b';
    case kBlue: return 'f';
    case kCyan: return 'h';
    case kYellow: return 'u';
    case kRed: return 'g';
    default: return 'm';
  }
}

Lines lanes(const RunFollower& run, int width, int most, bool colour, const Paint& paint) {
  Lines lines;
  const auto& tracks = run.data().lanes;
  if (!tracks || most < 3) return lines;
  double end_s = 0;
  for (const LaneTracks::Lane& lane : tracks->lanes) {
    for (const LaneSpan& span : lane.spans) end_s = std::max(end_s, span.end_s);
  }
  if (end_s <= 0) return lines;
  const std::string doing = run.live_text("running");
  std::string title =
      paint(kBold, fmt::format("lanes of step {}", tracks->step)) + paint(kDim, "  " + format_seconds(end_s));
  if (tracks->floor_s > 0) title += paint(kDim, ", floor " + format_seconds(tracks->floor_s));
  title += paint(kDim, "  f forward  h head  b backward  u update  g gradients  m other moves");
  lines.push_back(title);
  const int columns = std::max(4, width - 16);
  for (const LaneTracks::Lane& lane : tracks->lanes) {
    if (static_cast<int>(lines.size()) + 1 >= most) break;
    double busy_s = 0;
    std::vector<char> letters(static_cast<size_t>(columns), ' ');
    std::vector<int> codes(static_cast<size_t>(columns), 0);
    for (const LaneSpan& span : lane.spans) {
      busy_s += span.end_s - span.start_s;
      const auto column = [&](double at_s, int least) {
        return static_cast<int>(std::clamp(at_s / end_s * columns, static_cast<double>(least), columns - 1.0));
      };
      const int from = column(span.start_s, 0), to = column(std::max(span.start_s, span.end_s), from) + 1;
      for (int i = from; i < to; ++i) {
        letters[static_cast<size_t>(i)] = purpose_letter(span.action);
        codes[static_cast<size_t>(i)] = purpose_colour(span.action);
      }
    }
    std::string bar;
    for (size_t i = 0; i < letters.size();) {
      size_t end = i;
      while (end < letters.size() && codes[end] == codes[i]) ++end;
      std::string part;
      for (size_t k = i; k < end; ++k) part += codes[i] == 0 ? "·" : colour ? "█" : std::string(1, letters[k]);
      bar += paint(codes[i] == 0 ? kDim : codes[i], part);
      i = end;
    }
    lines.push_back(fmt::format("{:<10} {} {:>3.0f}%", lane.name.substr(0, 10), bar, 100 * busy_s / end_s));
  }
  if (!doing.empty()) lines.push_back(paint(kDim, "now: " + escape_line(doing)));
  return lines;
}

Lines memory(const RunFollower& run, int width, const Paint& paint) {
  Lines lines;
  for (const TierMemory& tier : run.data().memory) {
    const int64_t planned = tier.planned_bytes(), used = tier.used > 0 ? tier.used : tier.peak;
    const int64_t whole = std::max({tier.limit, planned, tier.peak, int64_t{1}});
    if (planned == 0 && used == 0) continue;
    const int columns = std::clamp(width - 84, 0, 40);
    const int full = static_cast<int>(static_cast<double>(used) / static_cast<double>(whole) * columns + 0.5);
    std::string bar;
    for (int i = 0; i < columns; ++i) bar += i < full ? "█" : "·";
    lines.push_back(fmt::format("{:<10} {}{}{}planned {}{}{}", tier.title, paint(kBlue, bar), columns > 0 ? " " : "",
                                tier.used > 0 ? "used " + format_bytes(used) + ", " : "", format_bytes(planned),
                                tier.peak > 0 ? ", peak " + format_bytes(tier.peak) : "",
                                tier.limit > 0 ? ", has " + format_bytes(tier.limit) : ""));
  }
  if (!lines.empty()) lines.insert(lines.begin(), paint(kBold, "memory"));
  return lines;
}

std::string headline(const RunFollower& run, const Paint& paint, size_t number, size_t of) {
  const RunHistory& h = run.data().history;
  const RunPhase phase = run.phase();
  const int colour = phase == RunPhase::complete ? kGreen : phase == RunPhase::running ? kCyan : kRed;
  std::string line = paint(kBold, escape_line(run.data().name())) +
                     (of > 1 ? fmt::format(" {}/{}", number + 1, of) : "") + "  " +
                     paint(colour, phase != RunPhase::absent ? phase_name(phase)
                                   : h.steps.empty()         ? "waiting for the run to begin"
                                                             : "no longer there");
  if (h.steps.empty()) return line;
  line += "  " + progress_of(run.data());
  if (const double left = run.seconds_left(); left >= 0) line += "  ETA " + format_duration(left);
  line += fmt::format("  loss {:.4f}", h.steps.back().loss);
  if (!h.evaluations.empty()) line += fmt::format("  eval {:.4f}", h.evaluations.back().loss);
  return line + fmt::format("  {} tokens/s", short_number(h.steps.back().tokens_per_s));
}

// The number of bytes of the UTF-8 character at `at`.
size_t character_bytes(const std::string& text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t bytes = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  return std::min(bytes, text.size() - at);
}

}  // namespace

int columns_of(const std::string& text) {
  int columns = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\x1b') {
      at = std::min(text.find('m', at), text.size() - 1) + 1;
      continue;
    }
    at += character_bytes(text, at);
    ++columns;
  }
  return columns;
}

std::string cut_to(const std::string& text, int columns) {
  std::string out;
  int taken = 0;
  bool coloured = false;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\x1b') {
      const size_t end = std::min(text.find('m', at), text.size() - 1) + 1;
      out += text.substr(at, end - at);
      coloured = text.compare(at, end - at, "\x1b[0m") != 0;
      at = end;
      continue;
    }
    const size_t bytes = character_bytes(text, at);
    if (taken == columns) break;
    out += text.substr(at, bytes);
    at += bytes;
    ++taken;
  }
  return coloured ? out + "\x1b[0m" : out;
}

Lines screen(const RunFollower& run, const Lines& alerts, const ScreenChoice& choice, int shown_width, int shown_height,
             size_t number, size_t of) {
  constexpr int kLeastWidth = 20, kLeastHeight = 4;
  const int width = std::max(shown_width, kLeastWidth), height = std::max(shown_height, kLeastHeight);
  const Paint paint(choice.colour);
  Lines top = {headline(run, paint, number, of)}, below;
  if (const std::string text = about(run.data()); !text.empty()) top.push_back(paint(kDim, escape_line(text)));
  if (!run.message().empty()) top.push_back(paint(kRed, escape_line(run.message())));
  constexpr size_t kAlerts = 3;
  for (size_t i = alerts.size() - std::min(alerts.size(), kAlerts); i < alerts.size(); ++i)
    top.push_back(paint(kRed, "! " + escape_line(alerts[i])));
  const std::string keys =
      paint(kDim, fmt::format("q quit  m curve  x axis  l log  s smoothing{}", of > 1 ? "  r next run" : ""));
  const int left = height - static_cast<int>(top.size()) - 1;
  constexpr int kLeastChart = 7;
  below = lanes(run, width, std::min(left - kLeastChart, 9), choice.colour, paint);
  const Lines tiers = memory(run, width, paint);
  if (left - static_cast<int>(below.size() + tiers.size()) >= kLeastChart)
    below.insert(below.end(), tiers.begin(), tiers.end());
  Lines lines = top;
  const int chart_height = left - static_cast<int>(below.size());
  if (chart_height >= 4) {
    const Lines drawn = chart(run, choice, width, chart_height, paint);
    lines.insert(lines.end(), drawn.begin(), drawn.end());
  }
  lines.insert(lines.end(), below.begin(), below.end());
  lines.resize(static_cast<size_t>(std::max(0, std::min(static_cast<int>(lines.size()), height - 1))));
  lines.push_back(keys);
  for (std::string& line : lines) line = cut_to(line, shown_width);
  lines.resize(static_cast<size_t>(std::clamp(shown_height, 1, static_cast<int>(lines.size()))));
  return lines;
}

}  // namespace megatrain
