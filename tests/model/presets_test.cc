#include "megatrain/model/presets.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/places.h"

namespace megatrain {
namespace {

// The names after "Presets: " up to the words that describe the last one; qwen3-{4b, 8b} stands for two.
std::set<std::string> names_in_contract() {
  std::ifstream file(in_repository("docs/reference/cli.md"));
  std::stringstream text;
  text << file.rdbuf();
  std::string list = text.str();
  list.erase(0, list.find("Presets: "));
  list.resize(list.find(", a dense"));
  std::set<std::string> names;
  const std::regex grouped(R"(((?:[a-z0-9.]+-)+)\{([^}]*)\})"), single(R"([a-z0-9.]+(-[a-z0-9.]*[a-z0-9])+|\d+b)");
  const auto each = [](const std::string& in, const std::regex& pattern, const auto& take) {
    for (std::sregex_iterator it(in.begin(), in.end(), pattern), end; it != end; ++it) take(*it);
  };
  each(list, grouped, [&](const std::smatch& group) {
    const std::string sizes = group.str(2);
    each(sizes, std::regex(R"([a-z0-9.]+)"), [&](const std::smatch& size) { names.insert(group.str(1) + size.str()); });
  });
  const std::string rest = std::regex_replace(list, grouped, "");
  each(rest, single, [&](const std::smatch& name) { names.insert(name.str()); });
  return names;
}

TEST(Presets, TheContractNamesThemAll) {
  const std::vector<std::string> all = preset_names();
  EXPECT_EQ(names_in_contract(), std::set<std::string>(all.begin(), all.end()));
}

TEST(Presets, CaseDashesAndUnderscoresOfANameDoNotMatter) {
  std::set<nlohmann::json> configs;
  for (const std::string& name : preset_names()) configs.insert(*preset_config(name));
  EXPECT_EQ(configs.size(), preset_names().size()) << "two presets have one name";
  EXPECT_EQ(preset_config("GLM-4.5-Air"), preset_config("glm4.5-air"));
  EXPECT_EQ(preset_config("Qwen3-Next-80B-A3B"), preset_config("qwen3-next-80b-a3b"));
  EXPECT_EQ(preset_config("GLM_4.7_Flash"), preset_config("glm4.7-flash"));
  EXPECT_FALSE(preset_config("glm4.5-airy").has_value());
}

}  // namespace
}  // namespace megatrain
