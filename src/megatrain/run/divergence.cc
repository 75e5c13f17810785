#include "megatrain/run/divergence.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace megatrain {

namespace {

// A model that has learnt nothing has the loss of guessing, and a step with few trained tokens may exceed it by chance.
constexpr double kAbove = 2;            // nats, above guessing and above the lowest so far
constexpr int64_t kInARow = 3;          // steps
constexpr double kFarAbove = 4;         // a multiple of guessing and of the lowest so far: one such step is enough
constexpr double kTellAgainAbove = 10;  // a multiple of the loss last reported

}  // namespace

DivergenceWatch::DivergenceWatch(int64_t vocab)
    : guessing_(std::log(static_cast<double>(std::max<int64_t>(vocab, 2)))) {}

bool DivergenceWatch::look(double loss) {
  const double reference = std::max(guessing_, lowest_);  // infinite until the first step
  high_ = loss > reference + kAbove ? high_ + 1 : 0;
  const bool diverges = high_ >= kInARow || loss > kFarAbove * reference;
  lowest_ = std::min(lowest_, loss);
  if (!diverges || loss <= kTellAgainAbove * told_) return false;
  told_ = loss;
  return true;
}

std::string DivergenceWatch::sentence(int64_t step, double loss) const {
  return fmt::format(
      "the loss of step {} is {:.4g}, far above the {:.3g} of random guessing; the lowest before was {:.4g}", step,
      loss, guessing_, lowest_);
}

}  // namespace megatrain
