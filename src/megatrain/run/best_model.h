// RUN/best: the model of the lowest evaluation loss, which a run with eval.keep_best writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

struct RunFiles;

struct BestModel {
  std::string path;  // RUN/best
  int64_t step = 0;
  double loss = 0;        // of its evaluation
  std::string data = {};  // BestRecord::data
};

// Returns nothing when the run does not keep its best model, has not evaluated yet, or ended with its best model. The
// same, with a warning, when best/ is gone. Throws Error(bad_input) when best.json is damaged.
std::optional<BestModel> find_best_model(const std::string& run_dir);

// What an export of RUN takes in place of the last model: find_best_model() if the run is complete. Logs which model is
// exported, and how to export the other one.
std::optional<BestModel> best_model_to_export(const RunFiles& run);

// The step of a directory that is RUN/model or RUN/best; -1: unknown.
int64_t step_of_model(const RunFiles& run, const std::string& directory);

// Warns by name when best.json exists and best/ does not.
void warn_of_lost_best(const RunFiles& run);

// What best/ holds when a run is resumed; reads the whole model. Returns nothing when there is no best model. A damaged
// or missing one gets a warning and counts as none.
std::optional<BestModel> resumed_best_model(const std::string& run_dir);

}  // namespace megatrain
