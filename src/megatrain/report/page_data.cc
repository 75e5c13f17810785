#include "megatrain/report/page_data.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace megatrain {

namespace {

using nlohmann::json;

constexpr size_t kMostRows = 1000;

json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.7g}", value).c_str(), nullptr);
}

constexpr std::pair<const char*, double RunStep::*> kColumns[] = {{"loss", &RunStep::loss},
                                                                  {"grad_norm", &RunStep::grad_norm},
                                                                  {"lr", &RunStep::lr},
                                                                  {"seconds", &RunStep::seconds},
                                                                  {"tokens_per_s", &RunStep::tokens_per_s}};
constexpr size_t kWithExtremes = 2;  // how many of these have them

}  // namespace

json rows_json(const std::vector<RunStep>& steps, size_t limit) {
  json rows;
  for (const char* name : {"step", "tokens", "time", "count"}) rows[name] = json::array();
  const size_t group = steps.size() <= limit ? 1 : (steps.size() + limit - 1) / limit;
  for (size_t c = 0; c < std::size(kColumns); ++c) {
    rows[kColumns[c].first] = json::array();
    if (group == 1 || c >= kWithExtremes) continue;
    for (const char* end : {"_low", "_high"}) rows[std::string(kColumns[c].first) + end] = json::array();
  }
  int64_t tokens = 0;
  double time = 0;
  for (size_t begin = 0; begin < steps.size(); begin += group) {
    const size_t end = std::min(begin + group, steps.size());
    for (size_t i = begin; i < end; ++i) {
      tokens += steps[i].tokens;
      time += steps[i].seconds;
    }
    rows["step"].push_back(steps[end - 1].step);
    rows["tokens"].push_back(tokens);
    rows["time"].push_back(rounded(time));
    rows["count"].push_back(end - begin);
    for (size_t c = 0; c < std::size(kColumns); ++c) {
      const auto& [name, column] = kColumns[c];
      double sum = 0, low = steps[begin].*column, high = low;
      for (size_t i = begin; i < end; ++i) {
        sum += steps[i].*column;
        low = std::min(low, steps[i].*column);
        high = std::max(high, steps[i].*column);
      }
      rows[name].push_back(rounded(sum / static_cast<double>(end - begin)));
      if (group == 1 || c >= kWithExtremes) continue;
      rows[std::string(name) + "_low"].push_back(rounded(low));
      rows[std::string(name) + "_high"].push_back(rounded(high));
    }
  }
  return rows;
}

json cards_json(const ReportData& data) {
  json cards = json::array();
  for (const Card& card : cards_of(data))
    cards.push_back({{"title", card.title}, {"value", card.value}, {"note", card.note}});
  return cards;
}

namespace {

json evaluations_json(const RunHistory& history) {
  json evaluations = json::array();
  for (const RunEvaluation& e : history.evaluations) evaluations.push_back({e.step, rounded(e.loss)});
  return evaluations;
}

}  // namespace

json run_json(const ReportData& data) {
  return {{"name", data.name()},
          {"state", data.state},
          {"why", data.why},
          {"complete", data.complete},
          {"about", about(data)},
          {"progress", progress_of(data)},
          {"rows", rows_json(data.history.steps, kMostRows)},
          {"evaluations", evaluations_json(data.history)},
          {"cards", cards_json(data)}};
}

}  // namespace megatrain
