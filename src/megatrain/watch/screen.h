// What a terminal shows of a run, as lines of text. Making them needs no terminal.
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

// At most `height` lines of at most `width` columns; below 20 by 4, a part of that is shown. The run is `number` of
// `of` watched runs.
std::vector<std::string> screen(const RunFollower& run, const std::vector<std::string>& alerts,
                                const ScreenChoice& choice, int width, int height, size_t number, size_t of);

// Columns that a text takes, without colour escapes. Every character is one column wide, except combining marks.
int columns_of(const std::string& text);
// Cuts to at most `columns` and resets colours.
std::string cut_to(const std::string& text, int columns);

}  // namespace megatrain
