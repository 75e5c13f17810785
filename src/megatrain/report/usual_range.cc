#include "megatrain/report/usual_range.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace megatrain {

ValueRange usual_range(const std::vector<Point>& points, bool logarithmic) {
  // kNeighbours is on each side. With two values, neither can be called an outlier.
  constexpr size_t kNeighbours = 4, kFewest = 3;
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (points.size() < kFewest) return {-kInfinite, kInfinite};
  double low = kInfinite, high = -kInfinite;
  std::vector<double> near;
  for (size_t i = 0; i < points.size(); ++i) {
    near.clear();
    for (size_t k = i - std::min(i, kNeighbours); k < std::min(i + kNeighbours + 1, points.size()); ++k)
      near.push_back(points[k].y);
    const size_t middle = (near.size() - 1) / 2;
    std::nth_element(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(middle), near.end());
    low = std::min(low, near[middle]);
    high = std::max(high, near[middle]);
  }
  if (logarithmic && low > 0) return {low / 1000, high * 1000};
  const double room = 4 * std::max({high - low, std::abs(low), std::abs(high)});
  if (room == 0) return {-kInfinite, kInfinite};
  return {low - room, high + room};
}

std::vector<Point> usual_points(const std::vector<Point>& points, bool logarithmic) {
  const ValueRange usual = usual_range(points, logarithmic);
  std::vector<Point> kept;
  std::copy_if(points.begin(), points.end(), std::back_inserter(kept),
               [&](const Point& p) { return usual.holds(p.y); });
  return kept;
}

}  // namespace megatrain
