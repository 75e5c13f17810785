// The table of verbs.
#include "megatrain/cli/verbs.h"

#include <set>

#include "megatrain/base/error.h"
#include "tests/cli/command.h"

namespace megatrain::cli {
namespace {

TEST(Verbs, AreNamedOnceAndEachSaysInItsHelpWhatItTakes) {
  std::set<std::string> names;
  for (const Verb& verb : verbs()) {
    EXPECT_TRUE(names.insert(verb.name).second) << verb.name;
    const std::string help = verb.help();
    EXPECT_EQ(help.rfind("megatrain " + verb.name, 0), 0u) << help;
    EXPECT_TRUE(help.ends_with("\n")) << help;
    for (const auto* words : {&verb.options, &verb.flags}) {
      for (const std::string& word : *words) EXPECT_NE(help.find(word), std::string::npos) << verb.name << " " << word;
    }
  }
}

TEST(Verbs, TheHelpOfTheProgramHasALineForEachThatHasASummary) {
  const std::string help = succeed({"--help"}).out;
  for (const Verb& verb : verbs()) {
    if (verb.summary.empty()) continue;
    const std::string words = "  megatrain " + verb.name + (verb.takes.empty() ? "" : " " + verb.takes) + " ";
    const size_t at = help.find(words);
    ASSERT_NE(at, std::string::npos) << words;
    EXPECT_NE(help.substr(at, help.find('\n', at) - at).find(verb.summary), std::string::npos) << verb.name;
  }
}

TEST(Verbs, AKeyOfTrainingIsRefusedByNameWhereNoneIsUsed) {
  for (const Verb& verb : verbs()) {
    if (verb.keys) {
      EXPECT_EQ(Arguments({"--optim.lr=1"}, verb).overrides(), Words{"--optim.lr=1"});
      continue;
    }
    try {
      Arguments({"--optim.lr=1"}, verb);
      ADD_FAILURE() << verb.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_config);
      EXPECT_NE(std::string(error.what()).find("'--optim.lr=1'"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("megatrain " + verb.name), std::string::npos) << error.what();
    }
  }
}

TEST(Verbs, AVerbOfTwoWordsIsFoundBeforeTheOneOfItsFirst) {
  EXPECT_EQ(succeed({"inspect", "data", "--help"}).out.rfind("megatrain inspect data CONFIG.yaml", 0), 0u);
  EXPECT_EQ(succeed({"inspect", "--help"}).out.rfind("megatrain inspect MODEL|RUN", 0), 0u);
}

TEST(Version, SaysVersionCommitLibrariesAndGpuALineEach) {
  std::istringstream lines(succeed({"--version"}).out);
  for (const char* begin : {"megatrain 0.", "commit ", "libraries ", "GPU "}) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(line.rfind(begin, 0), 0u) << line;
    EXPECT_GT(line.size(), std::string(begin).size());
  }
}

}  // namespace
}  // namespace megatrain::cli
