#include "megatrain/run/history_gaps.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/log.h"
#include "megatrain/io/json.h"
#include "megatrain/io/line_reader.h"
#include "megatrain/io/object_scan.h"
#include "megatrain/io/replace.h"

namespace megatrain {

namespace {

std::optional<int64_t> step_of(std::string_view line) {
  constexpr std::array<std::string_view, 1> kKeys = {"step"};
  std::array<std::string_view, 1> found;
  if (scan_object(line, kKeys, found)) return scanned_integer(found[0]);
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) return {};
  return object["step"].get<int64_t>();
}

std::vector<int64_t> steps_in(const std::string& path) {
  std::vector<int64_t> steps;
  if (!can_read(path)) return steps;
  for (LineReader line(path); line.next();)
    if (const std::optional<int64_t> step = step_of(line.line())) steps.push_back(*step);
  return steps;
}

}  // namespace

std::string describe_gaps(const std::string& name, std::vector<int64_t> steps, int64_t every) {
  constexpr size_t kShown = 4;
  if (every <= 0) return "";
  std::sort(steps.begin(), steps.end());
  std::vector<int64_t> regular = {0};  // every run begins at step 0
  for (const int64_t step : steps)
    if (step % every == 0 && step > regular.back()) regular.push_back(step);
  const auto neighbours = [&](int64_t a, int64_t b) { return b - a == every; };
  const auto first = std::adjacent_find(regular.begin(), regular.end(), neighbours);
  const auto last =
      std::adjacent_find(regular.rbegin(), regular.rend(), [&](int64_t b, int64_t a) { return neighbours(a, b); });
  if (first == regular.end()) return "";
  std::vector<std::string> missing;
  for (auto at = first; at + 1 < last.base(); ++at) {
    const int64_t from = *at + every, to = *(at + 1) - every;
    if (from <= to) missing.push_back(from == to ? std::to_string(from) : fmt::format("{} to {}", from, to));
  }
  if (missing.empty()) return "";
  const bool one = missing.size() == 1 && missing.front().find(' ') == std::string::npos;
  const bool more = missing.size() > kShown;
  missing.resize(std::min(missing.size(), kShown));
  return fmt::format("{} has no record of step{} {}{}, between steps with one every {}", name, one ? "" : "s",
                     fmt::join(missing, ", "), more ? ", ..." : "", every);
}

void warn_of_gaps(const TrainConfig& config) {
  const struct {
    const char* name;
    int64_t every;
  } histories[] = {{"/metrics.jsonl", 1}, {"/eval.jsonl", config.eval.every}, {"/samples.jsonl", config.sample.every}};
  for (const auto& [name, every] : histories) {
    const std::string path = config.run_dir + name;
    if (const std::string gaps = describe_gaps(path, steps_in(path), every); !gaps.empty())
      log_warn(gaps + ": lines were lost, and the curves do without them. The training itself is not affected");
  }
}

}  // namespace megatrain
