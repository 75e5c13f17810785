// Records of comma- or tab-separated text (RFC 4180): lines of cells; a cell in quotes may hold separators, line ends
// and doubled quotes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

// Finds the end of a record in text that comes in pieces.
class CsvScanner {
 public:
  explicit CsvScanner(char separator) : separator_(separator) {}

  // Position of the line feed that ends the record, or npos if the record continues. Call again with the text that
  // follows; after an end the next record begins.
  size_t find_end(std::string_view text, size_t from);
  bool in_quotes() const { return in_quotes_; }

 private:
  char separator_;
  bool in_quotes_ = false;    // inside a quoted cell
  bool after_quote_ = false;  // directly behind a quote that closed; another one doubles it
  bool at_cell_ = true;       // at the beginning of a cell
};

// Splits a record, which has no line end, into its cells. Returns what is wrong with it; empty if nothing is.
std::string split_csv(std::string_view record, char separator, std::vector<std::string>& cells);

// The separator that a header shows: a comma, or a semicolon or tab in a header without one.
char csv_separator(std::string_view header);

// Appends the record as a JSON object. All cells are texts.
void append_csv_object(std::string& out, const std::vector<std::string>& columns,
                       const std::vector<std::string>& cells);

}  // namespace megatrain
