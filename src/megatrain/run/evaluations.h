// The evaluations of a run: RUN/eval.jsonl, the lowest loss, and when there is no hope of a lower one.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

namespace megatrain {

struct Evaluation {
  int64_t step = 0;
  double loss = 0;     // mean over trained tokens
  int64_t tokens = 0;  // trained ones
};

class Evaluations {
 public:
  // Goes on from what the file holds, one evaluation a step, by step. `patience`: evaluations in a row without a lower
  // loss that exhaust; 0: never.
  Evaluations(std::string path, int64_t patience);

  // Whether this loss would be the lowest so far.
  bool is_lowest(double loss) const { return loss < best_loss_; }

  // Appends a line.
  void add(const Evaluation& evaluation);

  bool exhausted() const { return patience_ > 0 && since_best_ >= patience_; }
  double best_loss() const { return best_loss_; }
  int64_t best_step() const { return best_step_; }
  double last_loss() const { return last_loss_; }
  int64_t last_step() const { return last_step_; }  // -1: none
  std::optional<double> loss_of(int64_t step) const;

 private:
  void count(const Evaluation& evaluation);

  std::string path_;
  int64_t patience_;
  double best_loss_ = std::numeric_limits<double>::infinity(), last_loss_ = 0;
  std::map<int64_t, double> losses_;  // by step
  int64_t best_step_ = -1, last_step_ = -1, since_best_ = 0;
};

}  // namespace megatrain
