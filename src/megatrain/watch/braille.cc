#include "megatrain/watch/braille.h"

#include <algorithm>
#include <cmath>

namespace megatrain {

BrailleCanvas::BrailleCanvas(int columns, int rows)
    : columns_(std::max(columns, 0)),
      rows_(std::max(rows, 0)),
      dots_(static_cast<size_t>(columns_ * rows_)),
      ranks_(dots_.size()) {}

void BrailleCanvas::dot(int x, int y, int rank) {
  if (x < 0 || y < 0 || x >= dots_across() || y >= dots_up()) return;
  constexpr uint8_t kBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
  const size_t cell = at(x / 2, y / 4);
  dots_[cell] |= kBits[x % 2][y % 4];
  ranks_[cell] = std::max(ranks_[cell], static_cast<uint8_t>(rank));
}

void BrailleCanvas::curve(const std::vector<Point>& points, int rank) {
  const auto clamped = [this](double y) { return std::clamp(y, -1.0, static_cast<double>(dots_up())); };
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& from = points[i == 0 ? 0 : i - 1];
    const Point& to = points[i];
    const int begin = static_cast<int>(std::lround(std::clamp(from.x, -1.0, static_cast<double>(dots_across())))),
              end = static_cast<int>(std::lround(std::clamp(to.x, -1.0, static_cast<double>(dots_across()))));
    for (int x = begin; x <= end; ++x) {
      // The part of the line within this column of dots.
      const auto height = [&](double across) {
        const double part = to.x > from.x ? std::clamp((across - from.x) / (to.x - from.x), 0.0, 1.0) : 1;
        return clamped(from.y + part * (to.y - from.y));
      };
      double low = height(x - 0.5), high = height(x + 0.5);
      if (begin == end) low = clamped(from.y), high = clamped(to.y);
      if (low > high) std::swap(low, high);
      for (int y = static_cast<int>(std::lround(low)); y <= static_cast<int>(std::lround(high)); ++y) dot(x, y, rank);
    }
  }
}

std::string BrailleCanvas::cell(int column, int row) const {
  const uint8_t bits = dots_[at(column, row)];
  if (bits == 0) return " ";
  // U+2800 + bits
  return {'\xe2', static_cast<char>(0xa0 | bits >> 6), static_cast<char>(0x80 | (bits & 0x3f))};
}

int BrailleCanvas::rank(int column, int row) const { return ranks_[at(column, row)]; }

}  // namespace megatrain
