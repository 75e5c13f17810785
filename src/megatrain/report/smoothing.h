// Smooths curves, and reduces long ones to few points.
#pragma once

#include <cstddef>
#include <vector>

namespace megatrain {

struct Point {
  double x = 0, y = 0;
};

// At most `limit` points, including the first, the last and the extremes of every stretch.
std::vector<Point> thin_out(const std::vector<Point>& points, size_t limit);

// At most `limit` points, each the mean of several neighbours if necessary.
std::vector<Point> neighbour_means(const std::vector<Point>& points, size_t limit);

constexpr size_t kMostSmoothed = 1000;
// Replaces each point by the value of a line fitted to the points less than `half_width` away on both sides, with more
// weight on near ones (tricube). A straight line is unchanged up to its ends, so the curve does not lag behind its
// data. Returns at most kMostSmoothed points, as each one takes a look at all its neighbours. `points` ascend in x.
std::vector<Point> smoothed(const std::vector<Point>& points, double half_width);

// For a curve of this many steps.
double smoothing_half_width(double steps);
double wide_smoothing_half_width(double steps);  // for readers who choose more smoothing

}  // namespace megatrain
