// A text table: columns as wide as their widest cell, numbers right-aligned.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text() const;  // first column left-aligned, all others right-aligned

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace megatrain
