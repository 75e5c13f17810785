// RUN/best: the model of the lowest evaluation loss, which a run with eval.keep_best writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

struct BestModel {
  std::string path;  // RUN/best
  int64_t step = 0;
  double loss = 0;  // of its evaluation
};

// None: the run keeps none, has not evaluated yet, or its last model is the best one.
std::optional<BestModel> find_best_model(const std::string& run_dir);

}  // namespace megatrain
