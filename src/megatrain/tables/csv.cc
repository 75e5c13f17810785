#include "megatrain/tables/csv.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"
#include "megatrain/tables/json_quote.h"

namespace megatrain {

// A quote opens quotes only at the beginning of a cell. Doubled quotes close and open them again, so need no care here.
size_t CsvScanner::find_end(std::string_view text, size_t from) {
  for (size_t i = from; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      if (in_quotes_ || at_cell_ || after_quote_) {
        in_quotes_ = !in_quotes_;
        after_quote_ = !in_quotes_;
      }
      at_cell_ = false;
      continue;
    }
    if (in_quotes_) continue;
    after_quote_ = false;
    at_cell_ = c == separator_;
    if (c == '\n') {
      at_cell_ = true;
      return i;
    }
  }
  return std::string_view::npos;
}

std::string split_csv(std::string_view record, char separator, std::vector<std::string>& cells) {
  cells.clear();
  for (size_t at = 0;;) {
    std::string& cell = cells.emplace_back();
    if (at < record.size() && record[at] == '"') {
      for (++at;; ++at) {
        const size_t quote = record.find('"', at);
        if (quote == std::string_view::npos) return fmt::format("the quotes of cell {} do not end", cells.size());
        cell.append(record, at, quote - at);
        at = quote + 1;
        if (at == record.size() || record[at] != '"') break;
        cell += '"';
      }
      if (at < record.size() && record[at] != separator) {
        return fmt::format("something follows the quotes of cell {}: {}; double the quotes inside a cell", cells.size(),
                           printable(record.substr(at, 20)));
      }
    } else {
      const size_t end = std::min(record.find(separator, at), record.size());
      cell = record.substr(at, end - at);
      at = end;
    }
    if (at == record.size()) return "";
    ++at;  // the separator; an empty cell may follow it
  }
}

char csv_separator(std::string_view header) {
  if (header.find(',') != std::string_view::npos) return ',';
  for (const char other : {';', '\t'}) {
    if (header.find(other) != std::string_view::npos) return other;
  }
  return ',';
}

void append_csv_object(std::string& out, const std::vector<std::string>& columns,
                       const std::vector<std::string>& cells) {
  ensure(columns.size() == cells.size(), "a record has a cell for each column");
  out += '{';
  for (size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) out += ", ";
    append_json_quoted(out, columns[i]);
    out += ": ";
    append_json_quoted(out, cells[i]);
  }
  out += '}';
}

}  // namespace megatrain
