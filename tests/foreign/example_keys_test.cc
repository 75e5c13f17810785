// example_keys.tsv: the keys of Axolotl's and LLaMA-Factory's example files, the values they have there, and what
// becomes of each here. A line is a trainer, a key, a value as in YAML, and the outcome:
//   a key of ours (several: joined by commas)   it is translated to that
//   -                                           it has no effect, and the table of translations says why
//   warned                                      the same, with a warning by name
//   refused                                     the run ends with exit code 2 and the key's line
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/support/axolotl_examples.h"
#include "tests/support/foreign_file.h"
#include "tests/support/places.h"

namespace megatrain {
namespace {

struct Row {
  std::string trainer, key, value, outcome;
};

std::vector<Row> read_rows() {
  std::ifstream file(in_repository("tests/foreign/example_keys.tsv"));
  EXPECT_TRUE(file.good());
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    std::stringstream parts(line);
    Row& row = rows.emplace_back();
    for (std::string* part : {&row.trainer, &row.key, &row.value, &row.outcome}) std::getline(parts, *part, '\t');
  }
  return rows;
}

// The file to which the key is added, without the keys that a file has instead of it.
Keys base_of(const Row& row) {
  static const std::map<std::string, std::string> kInstead = {{"warmup_steps", "warmup_ratio"},
                                                              {"save_steps", "saves_per_epoch"},
                                                              {"save_strategy", "saves_per_epoch"},
                                                              {"eval_steps", "evals_per_epoch"},
                                                              {"eval_strategy", "evals_per_epoch"},
                                                              {"batch_size", "gradient_accumulation_steps"},
                                                              {"lora_target_modules", "lora_target_linear"}};
  Keys base = {{"model", "m"}, {"train_dataset", "d"}, {"max_steps", "5"}};
  if (row.trainer == "Axolotl") base = axolotl_lora();
  if (row.trainer == "LLaMA-Factory") base = lora();
  const auto instead = kInstead.find(row.key);
  return instead == kInstead.end() ? base : with(base, {{instead->second, "-"}});
}

// The lines of the table of translations that show this key, as what stands in the column "here".
std::vector<std::string> translations(const std::string& table, const std::string& key) {
  std::vector<std::string> found;
  std::stringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    const size_t gap = line.find("  ");
    if (gap == std::string::npos || !line.ends_with("  given")) continue;
    const std::string theirs = line.substr(0, gap);
    const bool of_key = theirs.starts_with(key + ":") || theirs.starts_with(key + ".");  // a section of theirs
    if (!of_key && theirs.find(" x " + key + ":") == std::string::npos) continue;
    found.push_back(line.substr(line.find_first_not_of(' ', gap)));
  }
  return found;
}

// The key of ours that begins such a line; empty: it says why there is none.
std::string our_key(const std::string& here) {
  const size_t end = here.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.");
  const bool is_key = end != std::string::npos && here.compare(end, 2, ": ") == 0;
  return is_key ? here.substr(0, end) : "";
}

int64_t warnings_in(const std::string& log) {
  int64_t count = 0;
  for (size_t at = log.find("theirs.yaml:"); at != std::string::npos; at = log.find("theirs.yaml:", at + 1)) ++count;
  return count;
}

std::string outcome_of(const Row& row) {
  const Keys base = base_of(row), keys = with(base, {{row.key, row.value}});
  if (const std::string said = refusal(keys); said != "accepted")
    return has(said, row.key) ? "refused" : "refused without its name: " + said;
  const std::string table = parse(keys).translation;
  std::set<std::string> ours;
  const std::vector<std::string> lines = translations(table, row.key);
  for (const std::string& here : lines)
    if (const std::string key = our_key(here); !key.empty()) ours.insert(key);
  if (lines.empty()) return "it is not in the table";
  if (!ours.empty()) return fmt::format("{}", fmt::join(ours, ","));
  return warnings_in(logged(keys)) > warnings_in(logged(base)) ? "warned" : "-";
}

TEST(ExampleKeys, BecomeWhatTheirTableSays) {
  const std::vector<Row> rows = read_rows();
  EXPECT_GT(rows.size(), 500u);
  for (const Row& row : rows)
    EXPECT_EQ(outcome_of(row), row.outcome) << fmt::format("{}\t{}\t{}", row.trainer, row.key, row.value);
}

}  // namespace
}  // namespace megatrain
