// The table of keys in docs/reference/config.md matches the program.
#include <fmt/format.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "megatrain/config/config.h"
#include "megatrain/config/config_keys.h"
#include "tests/support/places.h"

namespace megatrain {
namespace {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(trimmed(part));
  return parts;
}

// Key to default, from the table with the header "| key | default | meaning |". A row may list several keys, with one
// default each or one for all.
std::map<std::string, std::string> documented_keys(const std::string& page) {
  std::map<std::string, std::string> keys;
  std::istringstream lines(page);
  bool in_table = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("| key | default |")) {
      in_table = true;
      std::getline(lines, line);  // the rule under the header
    } else if (in_table && line.starts_with("|")) {
      const std::vector<std::string> cells = split(line.substr(1), '|');
      const std::vector<std::string> names = split(cells.at(0), ',');
      const std::vector<std::string> defaults = split(cells.at(1), ',');
      for (size_t i = 0; i < names.size(); ++i)
        keys[trimmed(names[i]).substr(1, names[i].size() - 2)] =
            names.size() == defaults.size() && names.size() > 1 ? defaults[i] : cells.at(1);
    } else {
      in_table = false;
    }
  }
  return keys;
}

bool is_plain(const std::string& text) { return !text.empty() && text.find(' ') == std::string::npos; }

bool says_same(const std::string& documented, const std::string& written) {
  char *end_a = nullptr, *end_b = nullptr;
  const double a = std::strtod(documented.c_str(), &end_a), b = std::strtod(written.c_str(), &end_b);
  if (*end_a == 0 && *end_b == 0) return a == b;
  return documented == written;
}

// One line for each difference between the page and the program.
std::vector<std::string> differences(const std::string& page) {
  std::vector<std::string> found;
  std::map<std::string, std::string> documented = documented_keys(page);
  const TrainConfig defaults;
  for (const ConfigKey& key : config_keys()) {
    const auto row = documented.find(key.name);
    if (row == documented.end()) {
      found.push_back(key.name + " is a key of the program, but not in the table");
      continue;
    }
    // A default in words, or none, describes more than the value alone could. So does a path for which the program has
    // no default.
    std::string written = key.write(defaults);
    std::erase(written, '"');
    if (is_plain(row->second) && is_plain(written) && written != "null" && !says_same(row->second, written))
      found.push_back(fmt::format("{}: the table says {}, the program {}", key.name, row->second, written));
    documented.erase(row);
  }
  for (const auto& [name, value] : documented) found.push_back(name + " is in the table, but not a key of the program");
  return found;
}

std::string contract() {
  std::ifstream file(in_repository("docs/reference/config.md"));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Contract, ItsTableHasTheKeysAndDefaultsOfTheProgram) {
  EXPECT_EQ(differences(contract()), std::vector<std::string>());
}

TEST(Contract, ATableThatLacksAKeyHasOneTooManyOrAnotherDefaultIsFound) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string page = contract();
    const size_t at = page.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return differences(page.replace(at, from.size(), to));
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(with("| `seq_len` | 1024 |", "| `seq_lem` | 1024 |"),
            Lines({"seq_len is a key of the program, but not in the table",
                   "seq_lem is in the table, but not a key of the program"}));
  EXPECT_EQ(with("| `seq_len` | 1024 |", "| `seq_len` | 2048 |"),
            Lines({"seq_len: the table says 2048, the program 1024"}));
  EXPECT_EQ(with("`optim.beta1`, `optim.beta2` | 0.9, 0.999", "`optim.beta1`, `optim.beta2` | 0.9, 0.99"),
            Lines({"optim.beta2: the table says 0.99, the program 0.999"}));
  EXPECT_EQ(with("| key | default |", "| name | default |").size(), config_keys().size());
}

}  // namespace
}  // namespace megatrain
