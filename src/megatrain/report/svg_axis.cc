#include "megatrain/report/svg_axis.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>

namespace megatrain {

namespace {

// The next round number from `raw` up: 1, 2 or 5 times a power of ten.
double round_step(double raw) {
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

// Uses enough decimals to distinguish neighbours; one exponent or suffix serves all ticks.
std::string label(double value, double step, double largest) {
  if (value == 0) return "0";
  const auto decimals = [](double s) { return static_cast<int>(std::max(0.0, -std::floor(std::log10(s) + 1e-9))); };
  if (largest < 1e-2) {
    const double exponent = std::floor(std::log10(largest) + 1e-9), unit = std::pow(10.0, exponent);
    return fmt::format("{:.{}f}e{}", value / unit, decimals(step / unit), static_cast<int>(exponent));
  }
  constexpr std::pair<double, const char*> kSuffixes[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, suffix] : kSuffixes) {
    if (largest >= 10 * unit) return fmt::format("{:.{}f}{}", value / unit, decimals(step / unit), suffix);
  }
  return fmt::format("{:.{}f}", value, decimals(step));
}

std::vector<Tick> multiples(double low, double high, double step) {
  const double largest = std::max(std::abs(low), std::abs(high));
  std::vector<Tick> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i)
    ticks.push_back({i * step, label(i * step, step, largest)});
  return ticks;
}

std::vector<Tick> ticks_in_unit(double high, int count, double unit, const char* name) {
  std::vector<Tick> ticks = linear_ticks(0, high / unit, count);
  for (Tick& tick : ticks) {
    tick.value *= unit;
    tick.label += fmt::format(" {}", name);
  }
  return ticks;
}

}  // namespace

double Scale::operator()(double value) const {
  const auto place = [this](double v) { return logarithmic ? std::log10(v) : v; };
  const double width = place(high) - place(low);
  return width == 0 ? from : from + (to - from) * (place(value) - place(low)) / width;
}

std::vector<Tick> linear_ticks(double low, double high, int count) {
  if (!(high > low)) return {{low, label(low, std::max(std::abs(low), 1.0) / 100, std::abs(low))}};
  constexpr double kFewest = 3;  // intervals
  double step = round_step((high - low) / count);
  if ((high - low) / step < kFewest) step = round_step((high - low) / (2 * count));
  return multiples(low, high, step);
}

std::vector<Tick> whole_ticks(double low, double high, int count) {
  constexpr double kFewest = 2.5;  // intervals
  const double width = std::max(high - low, 1.0);
  double step = round_step(width / count);
  if (width / step < kFewest) step = round_step(width / (2 * count));
  return multiples(low, high, std::max(1.0, step));
}

std::vector<Tick> logarithmic_ticks(double low, double high) {
  const double decades = std::log10(high / low);
  if (decades < 0.5) return linear_ticks(low, high, 5);
  const std::vector<double> factors = decades < 1   ? std::vector<double>{1, 1.5, 2, 3, 4, 5, 7}
                                      : decades < 3 ? std::vector<double>{1, 2, 5}
                                                    : std::vector<double>{1};
  std::vector<Tick> ticks;
  for (double power = std::floor(std::log10(low)); power <= std::log10(high); ++power) {
    for (const double factor : factors) {
      const double value = factor * std::pow(10.0, power);
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) ticks.push_back({value, fmt::format("{:g}", value)});
    }
  }
  return ticks;
}

std::vector<Tick> byte_ticks(double high, int count) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  double bytes = 1;
  for (; unit + 1 < std::size(kUnits) && high / bytes >= 1024; ++unit) bytes *= 1024;
  return ticks_in_unit(high, count, bytes, kUnits[unit]);
}

std::vector<Tick> time_ticks(double high_s, int count) {
  if (high_s >= 1) return ticks_in_unit(high_s, count, 1, "s");
  return high_s >= 1e-3 ? ticks_in_unit(high_s, count, 1e-3, "ms") : ticks_in_unit(high_s, count, 1e-6, "us");
}

std::vector<Tick> clock_ticks(double high_s, int count) {
  constexpr double kDay = 86400;
  constexpr double kSteps[] = {60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, kDay};
  const double raw = high_s / count;
  double step = std::ceil(raw / kDay) * kDay;
  if (raw <= 30)
    step = round_step(raw);
  else if (const auto found = std::lower_bound(std::begin(kSteps), std::end(kSteps), raw); found != std::end(kSteps))
    step = *found;
  std::vector<Tick> ticks;
  for (double i = 0; i * step <= high_s * (1 + 1e-9); ++i) ticks.push_back({i * step, clock_time(i * step)});
  return ticks;
}

std::string clock_time(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}h{:02}m", hours, minutes);
  return minutes > 0 ? fmt::format("{}m{:02}s", minutes, whole % 60) : fmt::format("{:.3g}s", seconds);
}

std::string pixels(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string short_number(double value) {
  constexpr std::pair<double, const char*> kSuffixes[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, suffix] : kSuffixes) {
    if (value >= unit * 0.9995) return fmt::format("{:.3g}{}", value / unit, suffix);
  }
  return fmt::format("{:.3g}", value);
}

}  // namespace megatrain
