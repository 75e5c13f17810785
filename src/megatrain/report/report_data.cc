#include "megatrain/report/report_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/data/open_data.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/replace.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/model.h"
#include "megatrain/report/svg_axis.h"
#include "megatrain/run/divergence.h"
#include "megatrain/run/history_gaps.h"
#include "megatrain/run/rising_loss.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kRecent = 20;    // steps averaged for current values
constexpr size_t kMostDamage = 8;  // reported one by one
constexpr const char* kWithout = "the report omits it";

// Errors have only the file's name, without its directory: the page may be for others.
json read_own_file(const RunFiles& run, const char* name) {
  constexpr int64_t kMost = 256 * kMiB;
  return parse_json(read_text_file(run.path + "/" + name, kMost), name, kWithout);
}

// Reads one file; a damaged one contributes nothing.
template <class Read>
void read_part(ReportData& data, const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.code() == ExitCode::io) throw;  // an unreadable file may be undamaged
    data.damaged.emplace_back(error.what());
  }
}

void read_model(const RunFiles& run, ReportData& data) {
  if (run.model_config_path.empty()) return;
  const std::string name = fs::path(run.model_config_path).filename().string();
  const ModelConfig model = parse_model_config(parse_json(run.model_config, name, kWithout), name);
  data.architecture = model.architecture;
  data.vocab = model.vocab;
  for (const LayerLayout& layout : model_layouts(model)) data.parameters += layout.parameters();
  data.active_parameters = data.parameters - idle_parameters(model);
}

void read_machine(const RunFiles& run, ReportData& data) {
  if (!can_read(run.path + "/identity.json")) return;
  const json identity = read_own_file(run, "identity.json");
  if (!identity.is_object() || !identity.contains("library") || !identity.at("library").is_string()) return;
  data.machine = identity.at("library").get<std::string>();
  data.aliased = data.machine.starts_with("cpu");
}

void read_memory(const RunFiles& run, ReportData& data) {
  if (!can_read(run.path + "/memory.json")) return;
  const json memory = read_own_file(run, "memory.json");
  std::vector<TierMemory> tiers;
  TierMemory device{.title = "Device"}, host{.title = "Host"}, disk{.title = "Disk"};
  for (const RunStep& step : data.history.steps) {
    device.peak = std::max(device.peak, step.hbm_peak);
    host.peak = std::max(host.peak, step.host_peak);
  }
  for (const auto& [key, tier] : {std::pair{"hbm", &device}, {"host", &host}, {"disk", &disk}}) {
    if (tier == &disk && memory.is_object() && !memory.contains(key)) continue;
    try {
      for (const auto& [tag, bytes] : memory.at(key).items()) tier->planned.emplace_back(tag, bytes.get<int64_t>());
    } catch (const json::exception&) {
      fail_input(fmt::format("memory.json is damaged: expected bytes by tier and tag; {}", kWithout));
    }
    tiers.push_back(*tier);
  }
  data.memory = std::move(tiers);
}

std::vector<ConfigDifference> differences_of(const TrainConfig& config) {
  const TrainConfig defaults;
  std::vector<ConfigDifference> differences;
  for (const ConfigKey& key : config_keys()) {
    const std::string value = key.write(config), by_default = key.write(defaults);
    if (value != by_default) differences.push_back({key.name, value, by_default});
  }
  return differences;
}

struct Recent {
  int64_t steps = 0;
  double loss = 0, seconds = 0;  // means
};

// The first step is a warm-up and counts only if it is the only one.
Recent recent(const RunHistory& history) {
  Recent mean;
  const int64_t all = std::ssize(history.steps), from = std::max<int64_t>(all > 1 ? 1 : 0, all - kRecent);
  for (int64_t i = from; i < all; ++i) {
    mean.loss += history.steps[static_cast<size_t>(i)].loss;
    mean.seconds += history.steps[static_cast<size_t>(i)].seconds;
  }
  mean.steps = all - from;
  mean.loss /= static_cast<double>(std::max<int64_t>(mean.steps, 1));
  mean.seconds /= static_cast<double>(std::max<int64_t>(mean.steps, 1));
  return mean;
}

template <class Records>
std::vector<int64_t> steps_of(const Records& records) {
  std::vector<int64_t> steps;
  for (const auto& record : records) steps.push_back(record.step);
  return steps;
}

void add_gaps(const TrainConfig& config, ReportData& data) {
  constexpr int64_t kUnknown = 0;  // steps of an epoch: known only from the data
  const RunHistory& history = data.history;
  const int64_t every = steps_between(config.eval.every, config.eval.every_part, data.steps, kUnknown);
  for (const std::string& gaps : {describe_gaps("metrics.jsonl", steps_of(history.steps), 1),
                                  describe_gaps("eval.jsonl", steps_of(history.evaluations), every),
                                  describe_gaps("samples.jsonl", steps_of(history.samples), config.sample.every)})
    if (!gaps.empty()) data.damaged.push_back(gaps + ": lines are missing, and the report omits them");
}

void add_warnings(ReportData& data) {
  std::optional<DivergenceWatch> divergence;
  if (data.vocab > 0) divergence.emplace(data.vocab);
  for (const RunStep& step : data.history.steps)
    if (divergence && divergence->look(step.loss))
      data.warnings.push_back(divergence->sentence(step.step, step.loss) + ": the run diverged");
  RisingLoss rising;
  for (const RunEvaluation& evaluation : data.history.evaluations)
    if (rising.look(evaluation.step, evaluation.loss)) data.warnings.push_back(rising.sentence());
}

}  // namespace

std::string ReportData::name() const { return fs::path(run).filename().string(); }

ReportData read_report(const std::string& path) {
  const RunFiles run = read_run(path);  // reports what is missing before anything else does
  ReportData data = read_report(path, read_history(path));
  if (data.history.damaged.empty()) add_gaps(run.config, data);  // otherwise the damaged lines are reported
  add_warnings(data);
  return data;
}

ReportData read_report(const std::string& path, RunHistory history) {
  constexpr int64_t kMaxConfigBytes = 16 * kMiB;
  const RunFiles run = read_run(path);
  ReportData data;
  data.run = fs::weakly_canonical(run.path).string();
  data.configuration = read_text_file(run.path + "/config.resolved.yaml", kMaxConfigBytes);
  data.differences = differences_of(run.config);
  data.complete = run.complete_step.has_value();
  data.state = data.complete ? "complete" : "not complete";
  data.history = std::move(history);
  data.steps = data.history.planned_steps ? data.history.planned_steps : run.config.steps;
  data.damaged = data.history.damaged;
  if (const size_t all = data.damaged.size(); all > kMostDamage) {
    data.damaged.resize(kMostDamage);
    data.damaged.push_back(fmt::format("{} more such problems are not shown", all - kMostDamage));
  }
  read_part(data, [&] { read_model(run, data); });
  read_part(data, [&] { read_machine(run, data); });
  read_part(data, [&] { read_memory(run, data); });
  read_part(data, [&] {
    if (can_read(run.path + "/lanes.json")) data.lanes = read_lanes(read_own_file(run, "lanes.json"), "lanes.json");
  });
  return data;
}

std::string about(const ReportData& d) {
  std::string text = d.architecture;
  if (d.parameters > 0)
    text += fmt::format(
        "{}{} parameters{}", text.empty() ? "" : ", ", format_count(d.parameters),
        d.active_parameters == d.parameters ? "" : fmt::format(" ({} active)", format_count(d.active_parameters)));
  if (!d.machine.empty()) text += (text.empty() ? "" : " · ") + d.machine;
  return text;
}

std::string progress_of(const ReportData& d) {
  const int64_t step = d.history.steps.empty() ? 0 : d.history.steps.back().step;
  if (d.steps <= 0) return step > 0 ? fmt::format("step {}", step) : "no step yet";
  return fmt::format("step {} of {}{}", step, d.steps, d.complete ? "" : fmt::format(" ({}%)", 100 * step / d.steps));
}

std::vector<Card> cards_of(const ReportData& d) {
  const RunHistory& h = d.history;
  if (h.steps.empty()) return {};
  const RunStep& first = h.steps.front();
  const RunStep& last = h.steps.back();
  const Recent now = recent(h);
  std::vector<Card> cards;
  cards.push_back(
      {fmt::format("Loss, last {}", counted(now.steps, "step")), fmt::format("{:.4f}", now.loss),
       fmt::format("mean; {:.4f} at step {}, {:.4f} at step {}", last.loss, last.step, first.loss, first.step)});
  if (const RunEvaluation* best = h.best_evaluation()) {
    const RunEvaluation& latest = h.evaluations.back();
    cards.push_back(
        {"Evaluation loss, lowest", fmt::format("{:.4f}", best->loss),
         fmt::format("at step {}, perplexity {:.4g}; the last {:.4f}", best->step, std::exp(best->loss), latest.loss)});
  }
  cards.push_back({"Tokens, all steps", short_number(static_cast<double>(h.tokens())),
                   fmt::format("{} in the last step", short_number(static_cast<double>(last.tokens)))});
  cards.push_back({"Tokens/s, median", short_number(h.tokens_per_s()),
                   fmt::format("last step {}, bound by {}", short_number(last.tokens_per_s), h.bound_by)});
  const int64_t left = d.steps - last.step;
  const double pace_s = h.step_seconds();
  const std::string each = fmt::format("{} a step, the mean of the last {}", format_seconds(now.seconds), now.steps);
  cards.push_back({"Time, all steps", format_duration(h.seconds()),
                   !d.why.empty() ? fmt::format("{} at step {}; {}", d.state, last.step, each)
                   : d.complete || left <= 0
                       ? each
                       : fmt::format("about {} to go at {} a step", format_duration(pace_s * static_cast<double>(left)),
                                     format_seconds(pace_s))});
  int64_t hbm = 0, host = 0;
  for (const RunStep& step : h.steps) {
    hbm = std::max(hbm, step.hbm_peak);
    host = std::max(host, step.host_peak);
  }
  cards.push_back(
      {"Memory, peak", format_bytes(hbm), fmt::format("on the device; {} on the host", format_bytes(host))});
  return cards;
}

}  // namespace megatrain
