// What a terminal shows of a run, as lines of text: no terminal is needed to make them.
#pragma once

#include <string>
#include <vector>

#include "megatrain/watch/run_follower.h"

namespace megatrain {

enum class CurveMetric { loss, grad_norm, lr, tokens_per_s, seconds };
enum class CurveAxis { steps, tokens, time };

struct ScreenChoice {
  CurveMetric metric = CurveMetric::loss;
  CurveAxis axis = CurveAxis::steps;
  bool logarithmic = false;
  bool smooth = true;
  bool colour = true;
};

// At most `height` lines of at most `width` columns; what is smaller than 20 by 4 shows a part of that. `number` and
// `of` count the runs that are watched.
std::vector<std::string> screen(const RunFollower& run, const std::vector<std::string>& alerts,
                                const ScreenChoice& choice, int width, int height, size_t number, size_t of);

// Columns that a text takes, escapes for colours not counted. Everything is one column wide but what combines.
int columns_of(const std::string& text);
// At most so many columns; colours are ended.
std::string cut_to(const std::string& text, int columns);

}  // namespace megatrain
