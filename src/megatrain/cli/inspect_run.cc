// Shows how far a run is.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/escape.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/inspect.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/model.h"
#include "megatrain/report/run_history.h"
#include "megatrain/run/best_model.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

namespace {

using nlohmann::ordered_json;

// A damaged best.json is reported, and the rest is still shown.
std::optional<BestModel> best_model_of(const RunFiles& run) {
  try {
    return find_best_model(run.path);
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
    log_warn(error.what());
    return {};
  }
}

ordered_json describe(const RunFiles& run, const RunHistory& history) {
  const TrainConfig& c = run.config;
  ordered_json json = {{"run", run.path}, {"complete", run.complete_step.has_value()}};
  json["step"] = history.steps.empty() ? run.complete_step.value_or(0) : history.steps.back().step;
  json["steps"] = history.planned_steps ? history.planned_steps : c.steps;
  json["loss"] = history.steps.empty() ? ordered_json() : ordered_json(history.steps.back().loss);
  if (const RunEvaluation* best = history.best_evaluation())
    json["best_evaluation"] = {{"step", best->step}, {"loss", best->loss}};
  json["tokens"] = history.tokens();
  json["tokens_per_s"] = history.tokens_per_s();
  json["seconds"] = history.seconds();
  json["checkpoints"] = ordered_json::array();
  for (const auto& [step, path] : list_checkpoints(run.path)) {
    json["checkpoints"].push_back({{"step", step}, {"path", path}});
    if (const std::string damage = damage_of_checkpoint(path); !damage.empty())
      json["checkpoints"].back()["damage"] = damage;
  }
  json["model"] = run.hash ? ordered_json(run.path + "/model") : ordered_json();
  const auto best = best_model_of(run);
  json["best_model"] =
      best ? ordered_json{{"path", best->path}, {"step", best->step}, {"loss", best->loss}} : ordered_json();
  if (!run.model_config_path.empty()) {
    const ModelConfig model = parse_model_config(
        parse_json(run.model_config, run.model_config_path, model_config_advice(run)), run.model_config_path);
    int64_t parameters = 0;
    for (const LayerLayout& layout : model_layouts(model)) parameters += layout.parameters();
    json["architecture"] = model.architecture;
    json["parameters"] = parameters;
    json["active_parameters"] = parameters - idle_parameters(model);
  }
  json["config"] = {{"model", c.model.path.empty() ? c.model.config : c.model.path},
                    {"precision", c.precision},
                    {"seq_len", c.seq_len},
                    {"batch", c.batch},
                    {"micro_batch", c.micro_batch},
                    {"lr", c.optim.lr},
                    {"schedule", c.optim.schedule},
                    {"clip", c.optim.clip},
                    {"seed", c.seed}};
  return json;
}

// Reports damaged checkpoints, after everything else was shown.
int exit_code(const ordered_json& json) {
  ExitCode code = ExitCode::ok;
  for (const ordered_json& checkpoint : json.at("checkpoints")) {
    if (!checkpoint.contains("damage")) continue;
    log_warn(checkpoint.at("damage").get<std::string>());
    code = ExitCode::corrupt_checkpoint;
  }
  return static_cast<int>(code);
}

std::string active_text(const ordered_json& json) {
  if (json.at("active_parameters") == json.at("parameters")) return "";
  return fmt::format(" ({} active)", format_count(json.at("active_parameters").get<int64_t>()));
}

void run_row(const std::string& name, const std::string& value) { fmt::print("{:<14}{}\n", name, escape_line(value)); }

}  // namespace

int inspect_run(const std::string& directory, const InspectOptions& options) {
  const RunFiles run = read_run(directory);
  const RunHistory history = read_history(run.path);
  if (!history.damaged.empty())
    log_warn(fmt::format(
        "{}: {}{}", run.path, history.damaged.front(),
        history.damaged.size() == 1 ? "" : fmt::format(" (the first of {} such lines)", history.damaged.size())));
  const std::string lost = describe_lost_model(run);
  if (!lost.empty()) log_warn(lost);
  const ordered_json json = describe(run, history);
  if (options.json) {
    fmt::print("{}\n", json_text(json, 1));
    return exit_code(json);
  }
  const TrainConfig& c = run.config;
  const char* const state = run.hash ? "complete" : run.complete_step ? "complete, its model is gone" : "not complete";
  run_row("run", fmt::format("{}, {}", run.path, state));
  if (json.contains("architecture"))
    run_row("model", fmt::format("{}, {} parameters{}, from {}", json.at("architecture").get<std::string>(),
                                 format_count(json.at("parameters").get<int64_t>()), active_text(json),
                                 json.at("config").at("model").get<std::string>()));
  run_row("step", fmt::format("{} of {}", json.at("step").get<int64_t>(), json.at("steps").get<int64_t>()));
  if (!history.steps.empty()) {
    run_row("loss", fmt::format("{:.4f}, at first {:.4f}", history.steps.back().loss, history.steps.front().loss));
    if (const RunEvaluation* best = history.best_evaluation())
      run_row("evaluation", fmt::format("best loss {:.4f}, at step {}; the last {:.4f}", best->loss, best->step,
                                        history.evaluations.back().loss));
    run_row("time", fmt::format("{}, {} tokens, {:.0f} tokens/s", format_duration(history.seconds()), history.tokens(),
                                history.tokens_per_s()));
    run_row("memory", fmt::format("device {}, host {}", format_bytes(history.steps.back().hbm_peak),
                                  format_bytes(history.steps.back().host_peak)));
  }
  run_row("training", fmt::format("{}, {} x {} tokens a step, lr {:g} {}, clip {:g}, seed {}", c.precision, c.batch,
                                  c.seq_len, c.optim.lr, c.optim.schedule, c.optim.clip, c.seed));
  for (const ordered_json& checkpoint : json.at("checkpoints"))
    run_row("checkpoint",
            fmt::format("step {}, {}{}", checkpoint.at("step").get<int64_t>(), checkpoint.at("path").get<std::string>(),
                        checkpoint.contains("damage") ? " (damaged)" : ""));
  if (const ordered_json& best = json.at("best_model"); !best.is_null())
    run_row("best model",
            fmt::format("{}, of step {}, evaluation loss {:.4f}; generate, chat, serve, eval{} of {} use it",
                        best.at("path").get<std::string>(), best.at("step").get<int64_t>(),
                        best.at("loss").get<double>(), run.hash ? " and export" : "", run.path));
  if (run.hash) {
    run_row("result", run.path + "/model");
  } else if (!run.complete_step) {
    run_row("resume with", resume_command(run));
  }
  return exit_code(json);
}

}  // namespace megatrain
