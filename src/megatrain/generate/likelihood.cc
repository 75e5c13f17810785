#include "megatrain/generate/likelihood.h"

#include <algorithm>
#include <cmath>

#include "megatrain/generate/sampler.h"

namespace megatrain {

Likelihood likelihood(std::span<const float> logits, int32_t id, int64_t top) {
  const float largest = logits[static_cast<size_t>(sample(logits, {.temperature = 0}, 0, 0))];
  double sum = 0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - largest));
  const double log_sum = std::log(sum) + static_cast<double>(largest);
  const auto likely = [&](int32_t at) {
    return LikelyToken{.id = at, .log_prob = static_cast<double>(logits[static_cast<size_t>(at)]) - log_sum};
  };
  Likelihood found{.token = likely(id)};
  if (top <= 0) return found;
  const auto likelier = [&](int32_t a, int32_t b) {
    const float of_a = logits[static_cast<size_t>(a)], of_b = logits[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  };
  // The best so far as a heap with the least likely in front: nearly every logit is compared once.
  std::vector<int32_t> best;
  const auto most = std::min(static_cast<size_t>(top), logits.size());
  for (int32_t i = 0; i < std::ssize(logits); ++i) {
    if (best.size() == most) {
      if (!likelier(i, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), likelier);
      best.back() = i;
    } else {
      best.push_back(i);
    }
    std::push_heap(best.begin(), best.end(), likelier);
  }
  std::sort_heap(best.begin(), best.end(), likelier);
  for (const int32_t i : best) found.top.push_back(likely(i));
  return found;
}

}  // namespace megatrain
