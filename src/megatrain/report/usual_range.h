// The values that a chart has room for, so that an absurd one does not make a flat line of all the others.
#pragma once

#include <vector>

#include "megatrain/report/smoothing.h"

namespace megatrain {

struct ValueRange {
  double low = 0, high = 0;
  bool holds(double value) const { return value >= low && value <= high; }
};

// What medians of nine neighbours span, with room around it: four times as much or four times its largest value, or of
// positive values a thousand times where the axis may be logarithmic. A fall from a high first loss is inside, since
// its neighbours are high too; a value that stands alone far from all others is not.
ValueRange usual_range(const std::vector<Point>& points, bool logarithmic);

// The points within: what smoothing takes, which one absurd value would bend.
std::vector<Point> usual_points(const std::vector<Point>& points, bool logarithmic);

}  // namespace megatrain
