#include "megatrain/report/page_data.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "megatrain/base/units.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr size_t kMostRows = 1000, kMostSamples = 200;

json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.7g}", value).c_str(), nullptr);
}

constexpr std::pair<const char*, double RunStep::*> kColumns[] = {{"loss", &RunStep::loss},
                                                                  {"grad_norm", &RunStep::grad_norm},
                                                                  {"lr", &RunStep::lr},
                                                                  {"seconds", &RunStep::seconds},
                                                                  {"tokens_per_s", &RunStep::tokens_per_s}};
constexpr size_t kWithExtremes = 2;  // the first of these

}  // namespace

json rows_json(const std::vector<RunStep>& steps, size_t limit, size_t from) {
  json rows;
  for (const char* name : {"step", "tokens", "time", "count"}) rows[name] = json::array();
  const size_t shown = steps.size() - std::min(from, steps.size());
  const size_t group = shown <= limit ? 1 : (shown + limit - 1) / limit;
  for (size_t c = 0; c < std::size(kColumns); ++c) {
    rows[kColumns[c].first] = json::array();
    if (group == 1 || c >= kWithExtremes) continue;
    for (const char* end : {"_low", "_high"}) rows[std::string(kColumns[c].first) + end] = json::array();
  }
  int64_t tokens = 0;
  double time = 0;
  for (size_t i = 0; i < std::min(from, steps.size()); ++i) {
    tokens += steps[i].tokens;
    time += steps[i].seconds;
  }
  for (size_t begin = from; begin < steps.size(); begin += group) {
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

json memory_json(const std::vector<TierMemory>& memory) {
  json tiers = json::array();
  for (const TierMemory& tier : memory) {
    json tags = json::array();
    for (const auto& [tag, bytes] : tier.planned) tags.push_back({tag, bytes});
    tiers.push_back(
        {{"title", tier.title}, {"planned", tags}, {"peak", tier.peak}, {"used", tier.used}, {"limit", tier.limit}});
  }
  return tiers;
}

json samples_json(const RunHistory& history) {
  json samples = json::array();
  const size_t from = history.samples.size() - std::min(history.samples.size(), kMostSamples);
  for (size_t i = from; i < history.samples.size(); ++i) {
    const RunSample& sample = history.samples[i];
    samples.push_back({{"step", sample.step}, {"prompt", sample.prompt}, {"text", sample.text}});
  }
  return samples;
}

json evaluations_json(const RunHistory& history) {
  json evaluations = json::array();
  for (const RunEvaluation& e : history.evaluations) evaluations.push_back({e.step, rounded(e.loss)});
  return evaluations;
}

json run_json(const ReportData& data) {
  return {{"name", data.name()},
          {"state", data.state},
          {"why", data.why},
          {"complete", data.complete},
          {"about", about(data)},
          {"progress", progress_of(data)},
          {"rows", rows_json(data.history.steps, kMostRows)},
          {"evaluations", evaluations_json(data.history)},
          {"cards", cards_json(data)},
          {"lanes", data.lanes ? lanes_json(*data.lanes) : json()},
          {"memory", memory_json(data.memory)}};
}

}  // namespace megatrain
