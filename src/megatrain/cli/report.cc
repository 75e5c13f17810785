// `megatrain report`: a run directory becomes one HTML page.
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/config.h"
#include "megatrain/model/model.h"
#include "megatrain/report/report_page.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void read_model(const RunFiles& run, ReportData& data) {
  if (run.model_config.empty()) return;
  const ModelConfig model =
      parse_model_config(parse_json(run.model_config, run.model_config_path, "expected a Hugging Face config.json"),
                         run.model_config_path);
  data.architecture = model.architecture;
  for (const LayerLayout& layout : model_layouts(model)) data.parameters += layout.parameters();
  data.active_parameters = data.parameters - idle_parameters(model);
}

void read_machine(const RunFiles& run, ReportData& data) {
  const std::string path = run.path + "/identity.json";
  if (!fs::exists(path)) return;
  const json identity = read_json_file(path);
  if (!identity.is_object() || !identity.contains("library") || !identity.at("library").is_string()) return;
  data.machine = identity.at("library").get<std::string>();
  data.aliased = data.machine.starts_with("cpu");
}

void read_memory(const RunFiles& run, ReportData& data) {
  const std::string path = run.path + "/memory.json";
  if (!fs::exists(path)) return;
  const json memory = read_json_file(path);
  TierMemory device{.title = "Device"}, host{.title = "Host"}, disk{.title = "Disk"};
  for (const RunStep& step : data.history.steps) {
    device.peak = std::max(device.peak, step.hbm_peak);
    host.peak = std::max(host.peak, step.host_peak);
  }
  for (const auto& [key, tier] : {std::pair{"hbm", &device}, {"host", &host}, {"disk", &disk}}) {
    if (tier == &disk && memory.is_object() && !memory.contains(key)) continue;
    try {
      for (const auto& [tag, bytes] : memory.at(key).items()) tier->planned.emplace_back(tag, bytes.get<int64_t>());
    } catch (const json::exception& error) {
      fail_input(fmt::format("{} is not bytes by tier and tag: {}; the file is damaged", path, error.what()));
    }
    data.memory.push_back(*tier);
  }
}

ReportData read_report(const std::string& path) {
  constexpr int64_t kMaxConfigBytes = 16 * kMiB;
  const RunFiles run = read_run(path);
  ReportData data;
  data.run = fs::weakly_canonical(run.path).string();
  data.configuration = read_text_file(run.path + "/config.resolved.yaml", kMaxConfigBytes);
  data.complete = run.complete_step.has_value();
  data.history = read_history(run.path);
  data.steps = data.history.planned_steps ? data.history.planned_steps : run.config.steps;
  read_model(run, data);
  read_machine(run, data);
  read_memory(run, data);
  if (const std::string lanes = run.path + "/lanes.json"; fs::exists(lanes))
    data.lanes = read_lanes(read_json_file(lanes), lanes);
  return data;
}

}  // namespace

int verb_report(const Arguments& arguments) {
  const std::string& run = arguments.one("RUN");
  const std::string out = arguments.option("--out").value_or(run + "/report.html");
  if (!out.ends_with(".html") && !out.ends_with(".htm"))
    fail_config(fmt::format("--out is '{}'; expected the name of a page, such as report.html", out));
  const ReportData data = read_report(run);
  const std::string page = report_page(data);
  write_text_file(out, page);
  if (arguments.json()) {
    const RunHistory& h = data.history;
    const RunEvaluation* best = h.best_evaluation();
    fmt::print("{}\n", json_text(json{{"report", out},
                                      {"bytes", page.size()},
                                      {"complete", data.complete},
                                      {"steps", h.steps.size()},
                                      {"loss", h.steps.empty() ? json() : json(h.steps.back().loss)},
                                      {"best_evaluation_loss", best ? json(best->loss) : json()},
                                      {"tokens", h.tokens()},
                                      {"tokens_per_s", h.tokens_per_s()},
                                      {"seconds", h.seconds()}}));
  } else {
    fmt::print("{}\n", out);
  }
  return 0;
}

}  // namespace megatrain
