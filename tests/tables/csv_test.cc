#include "megatrain/tables/csv.h"

#include <gtest/gtest.h>

#include <random>

#include "megatrain/io/json.h"
#include "megatrain/tables/json_quote.h"
#include "megatrain/tables/json_times.h"

namespace megatrain {
namespace {

using Cells = std::vector<std::string>;

std::string in_quotes(const std::string& cell) {
  std::string out = "\"";
  for (const char c : cell) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

TEST(Csv, CellsInQuotesAreThoseThatWereWrittenHoweverTheTextIsCut) {
  std::mt19937 random(7);
  const std::string alphabet = "a,;\"\n\r x";
  for (int round = 0; round < 300; ++round) {
    Cells cells(1 + random() % 4);
    std::string record;
    for (std::string& cell : cells) {
      for (size_t n = random() % 6; n > 0; --n) cell += alphabet[random() % alphabet.size()];
      record += (&cell == &cells.front() ? "" : ",") + in_quotes(cell);
    }
    Cells split;
    ASSERT_EQ(split_csv(record, ',', split), "");
    ASSERT_EQ(split, cells);
    // The end is found in text that comes in two pieces, wherever it is cut.
    const std::string text = record + "\nnext";
    for (size_t cut = 0; cut <= record.size(); ++cut) {
      CsvScanner scanner(',');
      ASSERT_EQ(scanner.find_end(text.substr(0, cut), 0), std::string::npos) << text << cut;
      ASSERT_EQ(scanner.find_end(text, cut), record.size()) << text << cut;
    }
  }
}

TEST(Csv, QuotesInsideACellWithoutQuotesAreItsText) {
  Cells cells;
  EXPECT_EQ(split_csv("5\" disk,x", ',', cells), "");
  EXPECT_EQ(cells, (Cells{"5\" disk", "x"}));
  CsvScanner scanner(',');
  EXPECT_EQ(scanner.find_end("5\" disk,x\n", 0), 9u);
}

TEST(Csv, TheSeparatorIsThatOfTheHeader) {
  EXPECT_EQ(csv_separator("a,b;c"), ',');
  EXPECT_EQ(csv_separator("a;b"), ';');
  EXPECT_EQ(csv_separator("a\tb"), '\t');
  EXPECT_EQ(csv_separator("a"), ',');
}

TEST(JsonQuote, ReadsBackAsTheTextWhereverTheControlCharactersAre) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 40, 'x');
    for (char& c : text) {
      if (random() % 4 == 0) c = static_cast<char>(random() % 128);
    }
    std::string json;
    append_json_quoted(json, text);
    ASSERT_EQ(nlohmann::json::parse(json).get<std::string>(), text);
  }
}

TEST(JsonTimes, DatesAreThoseOfTheCalendar) {
  const auto date = [](int64_t days) {
    std::string out;
    append_date(out, days);
    return out;
  };
  EXPECT_EQ(date(0), "1970-01-01");
  EXPECT_EQ(date(-1), "1969-12-31");
  EXPECT_EQ(date(11016), "2000-02-29");
  EXPECT_EQ(date(11017), "2000-03-01");
  EXPECT_EQ(date(-25509), "1900-02-28");
  EXPECT_EQ(date(-25508), "1900-03-01");
  EXPECT_EQ(date(19782), "2024-02-29");
}

}  // namespace
}  // namespace megatrain
