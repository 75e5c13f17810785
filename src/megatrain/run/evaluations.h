// The evaluations of a run: RUN/eval.jsonl, the lowest loss, and when to stop early.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "megatrain/run/rising_loss.h"

namespace megatrain {

struct Evaluation {
  int64_t step = 0;
  double loss = 0;     // mean over trained tokens
  int64_t tokens = 0;  // trained tokens only
};

class Evaluations {
 public:
  // Starts from the evaluations in the file, one per step. `patience` is the number of evaluations in a row without a
  // lower loss after which exhausted() is true; 0: never.
  Evaluations(std::string path, int64_t patience);

  bool is_lowest(double loss) const { return loss < best_loss_; }

  void add(const Evaluation& evaluation);

  bool exhausted() const { return patience_ > 0 && since_best_ >= patience_; }
  double best_loss() const { return best_loss_; }
  int64_t best_step() const { return best_step_; }
  double last_loss() const { return last_loss_; }
  int64_t last_step() const { return last_step_; }  // -1: none
  std::optional<double> loss_of(int64_t step) const;
  // A sentence when the last evaluation shows that the loss rises, once for each rise; otherwise empty.
  std::string rise() const { return rises_ ? rising_.sentence() : ""; }

 private:
  void count(const Evaluation& evaluation);

  std::string path_;
  int64_t patience_;
  double best_loss_ = std::numeric_limits<double>::infinity(), last_loss_ = 0;
  std::map<int64_t, double> losses_;  // by step
  int64_t best_step_ = -1, last_step_ = -1, since_best_ = 0;
  RisingLoss rising_;
  bool rises_ = false;
};

}  // namespace megatrain
