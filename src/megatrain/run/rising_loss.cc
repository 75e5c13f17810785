#include "megatrain/run/rising_loss.h"

#include <algorithm>

#include <fmt/format.h>

namespace megatrain {

namespace {

// Less is noise: losses near zero, and evaluations on few tokens.
constexpr double kLeastRise = 0.01;      // nats above the lowest
constexpr double kLeastRisePart = 0.01;  // of the lowest
constexpr double kLeastJump = 0.5;       // nats above the lowest: one evaluation is enough
constexpr double kLeastJumpPart = 0.5;   // of the lowest

bool above(double loss, double lowest, double nats, double part) {
  return loss > lowest + std::max(nats, part * lowest);
}

}  // namespace

bool RisingLoss::look(int64_t step, double loss) {
  if (since_lowest_.empty() || loss < since_lowest_.front().loss) {
    since_lowest_ = {{step, loss}};
    told_ = false;
    return false;
  }
  const double lowest = since_lowest_.front().loss, before = since_lowest_.back().loss;
  const bool twice = since_lowest_.size() > 1 && loss > before && before > since_lowest_[since_lowest_.size() - 2].loss;
  if (since_lowest_.size() > 2) since_lowest_.erase(since_lowest_.begin() + 1);
  since_lowest_.push_back({step, loss});
  const bool rises =
      (twice && above(loss, lowest, kLeastRise, kLeastRisePart)) || above(loss, lowest, kLeastJump, kLeastJumpPart);
  if (!rises || told_) return false;
  told_ = true;
  return true;
}

std::string RisingLoss::sentence() const {
  std::string text = "the evaluation loss rises";
  for (size_t i = 0; i < since_lowest_.size(); ++i) {
    const char* const joint = i == 0 ? ": " : i == 1 ? ", then " : " and ";
    text += fmt::format("{}{:.4f} at step {}{}", joint, since_lowest_[i].loss, since_lowest_[i].step,
                        i == 0 ? " (the lowest)" : "");
  }
  return text;
}

}  // namespace megatrain
