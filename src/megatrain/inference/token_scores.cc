#include "megatrain/inference/token_scores.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

namespace {

// Log-softmax of logits (V) at `id`, summed in double.
double log_prob(std::span<const float> logits, int32_t id) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double found = static_cast<double>(logits[static_cast<size_t>(id)]) - largest - std::log(sum);
  if (!std::isfinite(sum))
    fail(ExitCode::non_finite, "the model's output is not finite; its weights are damaged, or need --precision=fp32");
  return found;
}

void check_ids(const CachedForward& forward, std::span<const int32_t> ids) {
  const int64_t vocab = forward.model().vocab;
  for (const int32_t id : ids)
    if (id < 0 || id >= vocab)
      fail_input(fmt::format("the token id {} is outside the vocabulary of {} tokens", id, vocab));
}

}  // namespace

void each_logits(CachedForward& forward, std::span<const int32_t> ids, int64_t first,
                 const std::function<void(int64_t i, std::span<const float> logits)>& take) {
  check_ids(forward, ids);
  const int64_t count = static_cast<int64_t>(ids.size());
  for (int64_t at = 0; at < count;) {
    const int64_t fed = at < first ? std::min(first - at, forward.pass_tokens()) : 1;
    const std::span<const float> logits =
        forward.run({{.sequence = 0,
                      .position = at,
                      .ids = ids.subspan(static_cast<size_t>(at), static_cast<size_t>(fed)),
                      .logits = at >= first,
                      .length = count}});
    if (at >= first) take(at, logits);
    at += fed;
  }
}

std::vector<float> log_probs(CachedForward& forward, std::span<const int32_t> ids) {
  check_ids(forward, ids);
  std::vector<float> found;
  if (ids.size() < 2) return found;
  each_logits(forward, ids.first(ids.size() - 1), 0, [&](int64_t i, std::span<const float> logits) {
    found.push_back(static_cast<float>(log_prob(logits, ids[static_cast<size_t>(i + 1)])));
  });
  return found;
}

}  // namespace megatrain
