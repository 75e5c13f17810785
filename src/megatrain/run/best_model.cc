#include "megatrain/run/best_model.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/run/best_record.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/run/evaluations.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

namespace {

std::string best_of(const std::string& run_dir) { return run_dir + "/best"; }

// When best.json says that best/ should exist and it does not: a sentence without its full stop. Otherwise empty.
std::string describe_lost(const std::string& run_dir) {
  std::error_code none;
  const std::string record = best_record_path(run_dir);
  if (has_best(run_dir) || !std::filesystem::exists(record, none)) return "";
  return fmt::format("{} is gone or has no config.json, although {} says that the run wrote a model there",
                     best_of(run_dir), record);
}

// Describes best/ by its best.json. One written by an earlier megatrain has no loss; eval.jsonl then has the loss of
// its step. Returns nothing when there is no best.json: eval.jsonl alone may have lost the line of best/'s step.
std::optional<BestModel> describe(const std::string& run_dir, const std::optional<BestRecord>& record) {
  if (!record) {
    log_warn(fmt::format("{} is not there, so the step of {} is unknown; it is used only if you name it",
                         best_record_path(run_dir), best_of(run_dir)));
    return {};
  }
  std::optional<double> loss = record->loss;
  if (!loss) loss = Evaluations(run_dir + "/eval.jsonl", 0).loss_of(record->step);
  if (loss) return BestModel{.path = best_of(run_dir), .step = record->step, .loss = *loss, .data = record->data};
  log_warn(
      fmt::format("neither {} nor eval.jsonl has the loss of step {}, the step of {}; it is used only if you name it",
                  best_record_path(run_dir), record->step, best_of(run_dir)));
  return {};
}

// The message without its final full stop, if it has one.
std::string sentence_of(const Error& error) {
  std::string text = error.what();
  while (text.ends_with('.')) text.pop_back();
  return text;
}

// Weights are compared first, because steps can mislead: a resumed run may have restarted before the best step and
// reached it again with other settings.
bool is_last_model(const RunFiles& run, const std::optional<BestRecord>& record, int64_t step) {
  if (record && run.hash && !run.hash->model.empty()) return record->weights == run.hash->model;
  return run.hash && run.hash->step == step;
}

}  // namespace

void warn_of_lost_best(const RunFiles& run) {
  const std::string lost = describe_lost(run.path);
  if (run.config.eval.keep_best && !lost.empty()) log_warn(lost + "; bring it back from a copy to use it");
}

std::optional<BestModel> find_best_model(const std::string& run_dir) {
  if (!is_run_directory(run_dir) || (!has_best(run_dir) && describe_lost(run_dir).empty())) return {};
  const RunFiles run = read_run(run_dir);
  warn_of_lost_best(run);
  if (!run.config.eval.keep_best || !has_best(run_dir)) return {};
  const std::optional<BestRecord> record = read_best_record(run_dir);
  const std::optional<BestModel> best = describe(run_dir, record);
  if (!best || is_last_model(run, record, best->step)) return {};
  return best;
}

std::optional<BestModel> best_model_to_export(const RunFiles& run) {
  const std::optional<BestModel> best = find_best_model(run.path);
  if (!best) return {};
  if (!run.hash) {
    log_info(
        fmt::format("{}, so its newest checkpoint is exported; the lowest evaluation loss, {:.4f}, is that of {}, "
                    "of step {}: give that path to export it",
                    run.complete_step ? "the run's last model is gone" : "the run is not complete", best->loss,
                    best->path, best->step));
    return {};
  }
  const auto checkpoints = list_checkpoints(run.path);
  const bool saved = !checkpoints.empty() && checkpoints.back().first == run.hash->step;
  log_info(
      fmt::format("exporting {}, of step {}, whose evaluation loss {:.4f} is the run's lowest; for the last model "
                  "give {}",
                  best->path, best->step, best->loss, saved ? checkpoints.back().second : run.path + "/model"));
  return best;
}

int64_t step_of_model(const RunFiles& run, const std::string& directory) {
  std::error_code none;
  if (std::filesystem::weakly_canonical(directory, none).filename() != "best") return run.hash ? run.hash->step : -1;
  const std::optional<BestRecord> record = read_best_record(run.path);
  return record ? record->step : -1;
}

std::optional<BestModel> resumed_best_model(const std::string& run_dir) {
  try {
    if (const std::string lost = describe_lost(run_dir); !lost.empty()) fail_input(lost);
    if (!has_best(run_dir)) return {};
    verify_model_of_run(best_of(run_dir));
    const std::optional<BestRecord> record = read_best_record(run_dir);
    if (record) write_best_record(run_dir, *record);  // completes a record that a kill left half-replaced
    return describe(run_dir, record);
  } catch (const Error& error) {
    log_warn(
        fmt::format("{}. The run continues without it: the next evaluation writes its model to {}, whatever the loss",
                    sentence_of(error), best_of(run_dir)));
    return {};
  }
}

}  // namespace megatrain
