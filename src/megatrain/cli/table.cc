#include "megatrain/cli/table.h"

#include <algorithm>

#include <fmt/format.h>

namespace megatrain {

std::string Table::text() const {
  std::vector<size_t> width(rows_.front().size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += i == 0 ? fmt::format("{:<{}}", row[i], width[i]) : fmt::format("  {:>{}}", row[i], width[i]);
    text += line + "\n";
  }
  return text;
}

}  // namespace megatrain
