#include "megatrain/config/step_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <stdexcept>

namespace megatrain {
namespace {

int64_t parse_step(const std::string& text) {
  const size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  if (first == std::string::npos) throw std::invalid_argument(text);
  int64_t step = 0;
  const char* end = text.data() + last + 1;
  const auto [stop, error] = std::from_chars(text.data() + first, end, step);
  if (error != std::errc() || stop != end || step < 0) throw std::invalid_argument(text);
  return step;
}

}  // namespace

bool StepSet::contains(int64_t step) const {
  if (all && step >= 1) return true;
  return std::any_of(ranges.begin(), ranges.end(), [&](const auto& r) { return r.first <= step && step <= r.second; });
}

StepSet parse_steps(const std::string& text) {
  if (text == "none") return {};
  if (text == "all") return {.all = true};
  std::string list = text;
  if (list.size() >= 2 && list.front() == '[' && list.back() == ']') list = list.substr(1, list.size() - 2);
  std::vector<std::pair<int64_t, int64_t>> ranges;
  std::stringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const int64_t first = parse_step(part.substr(0, dash));
    const int64_t last = dash == std::string::npos ? first : parse_step(part.substr(dash + 1));
    if (last < first) throw std::invalid_argument(text);
    ranges.emplace_back(first, last);
  }
  if (ranges.empty() || list.back() == ',') throw std::invalid_argument(text);
  std::sort(ranges.begin(), ranges.end());
  StepSet steps;
  for (const auto& range : ranges) {
    if (!steps.ranges.empty() && range.first - 1 <= steps.ranges.back().second)
      steps.ranges.back().second = std::max(steps.ranges.back().second, range.second);
    else
      steps.ranges.push_back(range);
  }
  return steps;
}

std::string format_steps(const StepSet& steps) {
  if (steps.all) return "all";
  if (steps.ranges.empty()) return "none";
  std::string text;
  for (const auto& [first, last] : steps.ranges) {
    if (!text.empty()) text += ',';
    text += first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

}  // namespace megatrain
