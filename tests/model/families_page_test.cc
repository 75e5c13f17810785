// docs/families.md against the program: both tables, and the models of tests/parity.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/family.h"
#include "megatrain/model/refused_classes.h"
#include "tests/support/fixtures.h"
#include "tests/support/places.h"

namespace megatrain {
namespace {

using Cells = std::vector<std::string>;

// The rows of one table of the page by class: its other cells.
std::map<std::string, Cells> rows_under(const std::string& heading) {
  std::ifstream file(in_repository("docs/families.md"));
  std::map<std::string, Cells> rows;
  bool within = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) within = line == "## " + heading;
    if (!within || !line.starts_with("| `")) continue;
    Cells cells;
    std::stringstream text(line.substr(2, line.size() - 4));
    for (std::string cell; std::getline(text, cell, '|');) {
      const size_t begin = cell.find_first_not_of(' '), end = cell.find_last_not_of(' ');
      cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
    }
    const std::string name = cells.front().substr(1, cells.front().size() - 2);
    EXPECT_TRUE(rows.emplace(name, Cells(cells.begin() + 1, cells.end())).second) << name << " has two rows";
  }
  return rows;
}

// The models of tests/parity of each class, as the page lists them.
std::map<std::string, std::string> golden_models() {
  std::map<std::string, std::set<std::string>> names;
  for (const auto& entry : std::filesystem::directory_iterator(in_repository("tests/parity/goldens"))) {
    const nlohmann::json config = read_json_file(entry.path().string() + "/model/config.json");
    names[config.at("architectures").at(0)].insert(entry.path().filename().string());
  }
  std::map<std::string, std::string> lists;
  for (const auto& [architecture, models] : names) {
    std::string& list = lists[architecture];
    for (const std::string& model : models) list += (list.empty() ? "" : ", ") + model;
  }
  return lists;
}

const char* const kWrite = "; tools/write_families writes docs/families.md";

}  // namespace

TEST(FamiliesPage, HasEveryFamilyWithItsModelTypeAndItsParityModels) {
  const std::map<std::string, Cells> rows = rows_under("Supported");
  const std::map<std::string, std::string> models = golden_models();
  std::map<std::string, std::string> whole;  // multimodal classes with their model types
  for (const Family& family : families()) {
    for (const MultimodalClass& outer : family.part_of) whole[outer.architecture] = outer.model_type;
  }
  for (const auto& [architecture, type] : whole) {
    ASSERT_TRUE(rows.contains(architecture)) << architecture << kWrite;
    EXPECT_EQ(rows.at(architecture)[0], type) << kWrite;
  }
  EXPECT_EQ(rows.size(), families().size() + whole.size()) << kWrite;
  for (const Family& family : families()) {
    ASSERT_TRUE(rows.contains(family.architecture)) << family.architecture << kWrite;
    const Cells& cells = rows.at(family.architecture);
    ASSERT_EQ(cells.size(), 3u) << family.architecture << kWrite;
    EXPECT_EQ(cells[0], family.model_type) << kWrite;
    EXPECT_FALSE(cells[1].empty()) << family.architecture << " says nothing about itself";
    ASSERT_TRUE(models.contains(family.architecture)) << family.architecture << " has no parity model";
    EXPECT_EQ(cells[2], models.at(family.architecture)) << kWrite;
  }
}

TEST(FamiliesPage, HasEveryRefusedClassWithTheReasonThatTheProgramGives) {
  const std::map<std::string, Cells> rows = rows_under("Not supported");
  EXPECT_EQ(rows.size(), refused_classes().size()) << kWrite;
  EXPECT_GT(rows.size(), 100u);
  for (const RefusedClass& refused : refused_classes()) {
    ASSERT_TRUE(rows.contains(std::string(refused.name))) << refused.name << kWrite;
    const Cells& cells = rows.at(std::string(refused.name));
    ASSERT_EQ(cells.size(), 3u) << refused.name << kWrite;
    EXPECT_EQ(cells[1], refused.reason) << kWrite;
    EXPECT_EQ(cells[2], refused.nearest) << kWrite;
    expect_error(ExitCode::bad_input, {std::string(refused.name), std::string(refused.reason), "supported are"}, [&] {
      parse_model_config({{"architectures", {std::string(refused.name)}}}, "config.json");
    });
  }
}

TEST(FamiliesPage, NoSupportedClassIsRefused) {
  for (const Family& family : families()) EXPECT_FALSE(refused_class(family.architecture)) << family.architecture;
}

}  // namespace megatrain
