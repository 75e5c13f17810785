#include "megatrain/run/best_model.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/run/best_record.h"
#include "megatrain/run/evaluations.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

namespace {

std::string best_of(const std::string& run_dir) { return run_dir + "/best"; }

bool is_there(const std::string& run_dir) {
  std::error_code none;
  return std::filesystem::exists(best_of(run_dir) + "/config.json", none);
}

// A sentence without its end when best.json says that best/ should be there; else empty.
std::string describe_lost(const std::string& run_dir) {
  std::error_code none;
  const std::string record = best_record_path(run_dir);
  if (is_there(run_dir) || !std::filesystem::exists(record, none)) return "";
  return fmt::format("{} is gone or has no config.json, although {} says that the run wrote a model there",
                     best_of(run_dir), record);
}

// By best.json. Runs of an earlier megatrain have none, or one without a loss: then eval.jsonl has to say it.
std::optional<BestModel> describe(const std::string& run_dir, const std::optional<BestRecord>& record) {
  if (record && record->loss)
    return BestModel{.path = best_of(run_dir), .step = record->step, .loss = *record->loss, .data = record->data};
  const std::string path = run_dir + "/eval.jsonl";
  const Evaluations evaluations(path, 0);
  if (record) {
    if (const std::optional<double> loss = evaluations.loss_of(record->step))
      return BestModel{.path = best_of(run_dir), .step = record->step, .loss = *loss};
  }
  if (evaluations.best_step() < 0) return {};
  log_info(fmt::format("{} {}: by {}, {} is the model of step {}, evaluation loss {:.4f}", best_record_path(run_dir),
                       record ? "has no loss" : "is not there", path, best_of(run_dir), evaluations.best_step(),
                       evaluations.best_loss()));
  return BestModel{.path = best_of(run_dir), .step = evaluations.best_step(), .loss = evaluations.best_loss()};
}

// A resumed run may have gone back behind the best step and have reached it anew with other settings: then weights
// tell what steps do not.
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
  if (!is_run_directory(run_dir) || (!is_there(run_dir) && describe_lost(run_dir).empty())) return {};
  const RunFiles run = read_run(run_dir);
  warn_of_lost_best(run);
  if (!run.config.eval.keep_best || !is_there(run_dir)) return {};
  const std::optional<BestRecord> record = read_best_record(run_dir);
  const std::optional<BestModel> best = describe(run_dir, record);
  if (!best || is_last_model(run, record, best->step)) return {};
  return best;
}

std::optional<BestModel> resumed_best_model(const std::string& run_dir) {
  try {
    if (const std::string lost = describe_lost(run_dir); !lost.empty()) fail_input(lost);
    if (!is_there(run_dir)) return {};
    verify_model_of_run(best_of(run_dir));
    const std::optional<BestRecord> record = read_best_record(run_dir);
    if (record) write_best_record(run_dir, *record);  // it may be what a kill left
    return describe(run_dir, record);
  } catch (const Error& error) {
    log_warn(
        fmt::format("{}. The run goes on without it: the next evaluation writes its model to {}, whatever the loss",
                    error.what(), best_of(run_dir)));
    return {};
  }
}

}  // namespace megatrain
