#include "megatrain/base/table.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/escape.h"

namespace megatrain {

std::string Table::text() const {
  std::vector<std::vector<std::string>> rows = rows_;
  std::vector<size_t> width(rows.front().size());
  for (auto& row : rows) {
    for (std::string& cell : row) cell = escape_line(cell);
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += i == 0 ? fmt::format("{:<{}}", row[i], width[i]) : fmt::format("  {:>{}}", row[i], width[i]);
    text += line + "\n";
  }
  return text;
}

}  // namespace megatrain
