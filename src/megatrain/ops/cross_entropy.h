// Cross-entropy of one chunk of tokens, forward and backward in one pass. Logits never exist for all tokens.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

inline constexpr int32_t kIgnoreLabel = -100;

// loss[t] = logsumexp(logits[t]) - logits[t][label[t]], 0 where the label is kIgnoreLabel.
// correct[t] = 1 where the label's logit is the row's largest (the first of equals), else 0 (0 where ignored).
// When `backward`, logits become d(sum of loss * scale * token_scales)/d(logits); ignored rows become 0.
// With a cap the logits count as cap * tanh(logits / cap), and the gradient is that of the logits before the cap.
struct CrossEntropy {
  View logits;            // (C, V), in place
  const int32_t* labels;  // (C)
  float scale;            // 1 / trained tokens of the step
  float* loss;            // (C)
  int32_t* correct;       // (C)
  bool backward;
  const float* token_scales = nullptr;  // (C) weights of the tokens' losses; nullptr: all are 1
  float cap = 0;                        // 0: none
};

// logits = cap * tanh(logits / cap), for generation
struct CapLogits {
  View logits;  // (T, V) fp32, in place, strided rows
  float cap;
};

}  // namespace megatrain
