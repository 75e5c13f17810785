#include "megatrain/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"

namespace megatrain {

namespace {

// The index of the largest logit; the first if there are several.
size_t largest(std::span<const float> logits) {
  size_t best = 0;
  bool numbers = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    numbers = numbers && logits[i] == logits[i];
    if (logits[i] > logits[best]) best = i;
  }
  if (!numbers || std::isinf(logits[best])) {
    fail(ExitCode::non_finite,
         "the model's output is not finite, so no token can be chosen; its weights are damaged, or need "
         "--precision=fp32");
  }
  return best;
}

bool likelier(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
}

void normalise(std::vector<Candidate>& list) {
  double sum = 0;
  for (const Candidate& candidate : list) sum += candidate.probability;
  for (Candidate& candidate : list) candidate.probability /= sum;
}

}  // namespace

std::vector<Candidate> candidates(std::span<const float> logits, const Sampling& sampling) {
  const double top = static_cast<double>(logits[largest(logits)]);
  std::vector<Candidate> list(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    list[i] = {static_cast<int32_t>(i), std::exp((static_cast<double>(logits[i]) - top) / sampling.temperature)};
  }
  if (sampling.top_k > 0 && sampling.top_k < static_cast<int64_t>(list.size())) {
    std::nth_element(list.begin(), list.begin() + sampling.top_k - 1, list.end(), likelier);
    list.resize(static_cast<size_t>(sampling.top_k));
    std::sort(list.begin(), list.end(), likelier);
  }
  normalise(list);
  if (sampling.top_p < 1) {
    // a heap yields the likeliest first, and only as many as needed
    const auto behind = [](const Candidate& a, const Candidate& b) { return likelier(b, a); };
    std::make_heap(list.begin(), list.end(), behind);
    std::vector<Candidate> kept;
    for (double held = 0; kept.empty() || (held < sampling.top_p && !list.empty());) {
      std::pop_heap(list.begin(), list.end(), behind);
      kept.push_back(list.back());
      list.pop_back();
      held += kept.back().probability;
    }
    list = std::move(kept);
    normalise(list);
  }
  return list;
}

int32_t sample(std::span<const float> logits, const Sampling& sampling, uint64_t sequence, int64_t position) {
  if (sampling.temperature == 0) return static_cast<int32_t>(largest(logits));
  constexpr uint64_t kPurpose = 0x73616d706c65ull << 16;  // "sample"
  const double drawn = random_uniform(sampling.seed, kPurpose + sequence, static_cast<uint64_t>(position));
  const std::vector<Candidate> list = candidates(logits, sampling);
  double held = 0;
  for (const Candidate& candidate : list) {
    held += candidate.probability;
    if (drawn < held) return candidate.id;
  }
  // rounding left the sum below the drawn number: take the last token with a probability above 0
  return std::find_if(list.rbegin(), list.rend(), [](const Candidate& c) { return c.probability > 0; })->id;
}

int32_t sample(std::span<const float> logits, const Sampling& sampling, uint64_t sequence, int64_t position,
               const TokenSet& allowed) {
  std::vector<float> masked(logits.begin(), logits.end());
  for (size_t id = 0; id < masked.size(); ++id) {
    if (!allowed.has(static_cast<int32_t>(id)) && masked[id] == masked[id])  // a NaN stays, to be refused
      masked[id] = -std::numeric_limits<float>::infinity();
  }
  return sample(masked, sampling, sequence, position);
}

}  // namespace megatrain
