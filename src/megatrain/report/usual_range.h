// The range of values that a chart shows, so that one outlier does not flatten all the rest.
#pragma once

#include <vector>

#include "megatrain/report/smoothing.h"

namespace megatrain {

struct ValueRange {
  double low = 0, high = 0;
  bool holds(double value) const { return value >= low && value <= high; }
};

// The span of the medians of nine neighbours, widened on both sides by four times that span or four times its largest
// magnitude. If the axis may be logarithmic and values are positive, it is widened by a factor of a thousand. A fall
// from a high first loss is inside, since its neighbours are high too; an isolated value far from all others is not.
ValueRange usual_range(const std::vector<Point>& points, bool logarithmic);

// The points within that range, for smoothing: a single outlier would bend the curve.
std::vector<Point> usual_points(const std::vector<Point>& points, bool logarithmic);

}  // namespace megatrain
