#include "megatrain/report/smoothing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace megatrain {

std::vector<Point> thin_out(const std::vector<Point>& points, size_t limit) {
  if (points.size() <= limit) return points;
  // Two points per stretch, plus the first and the last.
  const size_t stretches = limit / 2 - 1, inner = points.size() - 2;
  std::vector<Point> kept = {points.front()};
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + 1 + static_cast<int64_t>(i * inner / stretches),
               end = points.begin() + 1 + static_cast<int64_t>((i + 1) * inner / stretches);
    auto [low, high] = std::minmax_element(begin, end, [](const Point& a, const Point& b) { return a.y < b.y; });
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  kept.push_back(points.back());
  return kept;
}

std::vector<Point> neighbour_means(const std::vector<Point>& points, size_t limit) {
  const size_t group = (points.size() + limit - 1) / limit;
  if (group <= 1) return points;
  std::vector<Point> means;
  for (size_t begin = 0; begin < points.size(); begin += group) {
    const size_t end = std::min(begin + group, points.size());
    Point sum;
    for (size_t i = begin; i < end; ++i) {
      sum.x += points[i].x;
      sum.y += points[i].y;
    }
    const auto count = static_cast<double>(end - begin);
    means.push_back({sum.x / count, sum.y / count});
  }
  return means;
}

std::vector<Point> smoothed(const std::vector<Point>& points, double half_width) {
  std::vector<Point> out;
  const size_t count = std::min(points.size(), kMostSmoothed);
  size_t begin = 0, end = 0;
  for (size_t k = 0; k < count; ++k) {
    const Point& at = points[count < 2 ? 0 : k * (points.size() - 1) / (count - 1)];
    while (points[begin].x <= at.x - half_width) ++begin;
    while (end < points.size() && points[end].x < at.x + half_width) ++end;
    double weights = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
    for (size_t i = begin; i < end; ++i) {
      const double x = points[i].x - at.x, far = std::abs(x) / half_width, near = 1 - far * far * far;
      const double weight = near * near * near;
      weights += weight;
      sum_x += weight * x;
      sum_y += weight * points[i].y;
      sum_xx += weight * x * x;
      sum_xy += weight * x * points[i].y;
    }
    const double spread = weights * sum_xx - sum_x * sum_x;
    const bool line = spread > 1e-9 * weights * sum_xx;
    out.push_back({at.x, line ? (sum_xx * sum_y - sum_x * sum_xy) / spread : sum_y / weights});
  }
  return out;
}

double smoothing_half_width(double steps) { return std::max(4.0, steps / 25); }
double wide_smoothing_half_width(double steps) { return std::max(4.0, steps / 8); }

}  // namespace megatrain
