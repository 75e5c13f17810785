// A curve in a terminal: a cell of braille has two dots across and four up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/report/smoothing.h"

namespace megatrain {

class BrailleCanvas {
 public:
  BrailleCanvas(int columns, int rows);  // of cells

  int dots_across() const { return 2 * columns_; }
  int dots_up() const { return 4 * rows_; }

  // A dot, from the left and from the top; outside it is nothing. A cell has the highest rank drawn in it.
  void dot(int x, int y, int rank);
  // The curve through points that ascend in x, in dots; gaps between dots of a column are filled.
  void curve(const std::vector<Point>& points, int rank);

  std::string cell(int column, int row) const;  // UTF-8; a blank where nothing is
  int rank(int column, int row) const;          // 0: nothing

 private:
  size_t at(int column, int row) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }
  int columns_, rows_;
  std::vector<uint8_t> dots_, ranks_;
};

}  // namespace megatrain
