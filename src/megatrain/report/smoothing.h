// Curves without their noise, and long ones in few points.
#pragma once

#include <cstddef>
#include <vector>

namespace megatrain {

struct Point {
  double x = 0, y = 0;
};

// At most `limit` points, the first, the last and the extremes of every stretch among them.
std::vector<Point> thin_out(const std::vector<Point>& points, size_t limit);

// At most `limit` points: as many neighbours as it takes become one, their mean.
std::vector<Point> neighbour_means(const std::vector<Point>& points, size_t limit);

constexpr size_t kMostSmoothed = 1000;
// A point becomes the value there of a line fitted to the points less than `half_width` away on both sides, near ones
// weighing more (tricube). A straight line stays as it is up to its ends, so the curve does not lag behind what it
// smooths. Of more than kMostSmoothed points that many are given, as each takes a look at all its neighbours. `points`
// ascend in x.
std::vector<Point> smoothed(const std::vector<Point>& points, double half_width);

// For a curve of so many steps.
double smoothing_half_width(double steps);
double wide_smoothing_half_width(double steps);  // of a reader who asks for more

}  // namespace megatrain
