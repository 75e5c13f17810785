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

// None: the run keeps none, has not evaluated yet, or its last model is the best one; also, with a warning, when best/
// is gone. Throws Error(bad_input) when best.json is damaged.
std::optional<BestModel> find_best_model(const std::string& run_dir);

// A warning by name when best.json is there and best/ is not.
void warn_of_lost_best(const RunFiles& run);

// What best/ holds as a resumed run finds it; it is read through. None: there is none. A damaged one, or one that is
// gone, gets a warning and counts as none.
std::optional<BestModel> resumed_best_model(const std::string& run_dir);

}  // namespace megatrain
