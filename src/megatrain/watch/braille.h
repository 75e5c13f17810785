// A curve in a terminal: a braille cell is two dots wide and four dots high.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/report/smoothing.h"

namespace megatrain {

class BrailleCanvas {
 public:
  BrailleCanvas(int columns, int rows);  // in cells

  int dots_across() const { return 2 * columns_; }
  int dots_up() const { return 4 * rows_; }

  // Sets a dot, counted from the left and from the top; ignored outside. A cell takes the highest rank drawn in it.
  void dot(int x, int y, int rank);
  // Draws the curve through points ascending in x, in dots; vertical gaps are filled.
  void curve(const std::vector<Point>& points, int rank);

  std::string cell(int column, int row) const;  // UTF-8; a blank if the cell is empty
  int rank(int column, int row) const;          // 0: empty

 private:
  size_t at(int column, int row) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }
  int columns_, rows_;
  std::vector<uint8_t> dots_, ranks_;
};

}  // namespace megatrain
