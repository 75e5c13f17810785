// Completion in bash itself: sources the script and asks what it offers after a line.
#include "megatrain/cli/completion.h"

#include "megatrain/base/error.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/config_keys.h"
#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

// What bash offers after the line, sorted, in a directory with a run, a configuration and another file.
class Shell {
 public:
  Shell() {
    fs::create_directories(place_ / "runs/chat");
    for (const char* name : {"chat.yaml", "other.yml", "notes.txt"}) write_bytes(place_ / name, "");
    write_bytes(place_ / "megatrain.bash", succeed({"completion", "bash"}).out);
    write_bytes(place_ / "ask", R"(source ./megatrain.bash
COMP_LINE=$1 COMP_POINT=${#1}
_megatrain
[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort
)");
  }

  // Checks the words offered after each line.
  void expect(const std::vector<std::pair<std::string, std::string>>& lines) const {
    for (const auto& [line, words] : lines) EXPECT_EQ(offers(line), words) << line;
  }

 private:
  std::string offers(const std::string& line) const {
    const Outcome outcome = Process({place_.path(), line}, "", "cd \"$1\" && exec bash --norc ./ask \"$2\"").wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    std::string words = outcome.out;
    std::replace(words.begin(), words.end(), '\n', ' ');
    if (!words.empty()) words.pop_back();
    return words;
  }

  TemporaryDirectory place_;
};

}  // namespace

TEST(Completion, OffersVerbsOptionsKeysValuesAndFilesInBash) {
  Shell().expect({
      {"megatrain tr", "train"},
      {"megatrain help tr", "train"},
      {"megatrain --v", "--version"},
      {"megatrain bench st", "step"},
      {"megatrain inspect d", "data"},
      {"megatrain train ", "chat.yaml other.yml runs"},
      {"megatrain train ch", "chat.yaml"},
      {"megatrain generate r", "runs"},
      {"megatrain generate runs/", "runs/chat"},
      {"megatrain generate runs/chat --prompt-", "--prompt-file"},
      {"megatrain generate runs/chat --prompt-file n", "notes.txt"},
      {"megatrain export runs/chat --dtype ", "bf16 fp32"},
      {"megatrain completion ", "bash fish zsh"},
      {"megatrain inspect data chat.yaml --color=a", "always auto"},
  });
}

TEST(Completion, OffersKeysWhereAVerbTakesThemAndTheirWordsBehindThem) {
  Shell().expect({
      {"megatrain train chat.yaml --optim.sch", "--optim.schedule="},
      {"megatrain train chat.yaml --optim.schedule=c", "constant cosine"},
      {"megatrain train chat.yaml --optim.schedule c", "constant cosine"},
      {"megatrain train chat.yaml --resu", "--resume"},
      {"megatrain train chat.yaml --resume --device=c", "cpu cuda"},
      {"megatrain train chat.yaml --data.template=n", "notes.txt"},
      {"megatrain generate runs/chat --optim.", ""},
      {"megatrain generate runs/chat --device c", "cpu cuda"},
      {"megatrain train --help op", "optim"},
      {"megatrain help train op", "optim"},
      {"megatrain help watch op", ""},
      {"megatrain train chat.yaml --checkpoint.every=", "epoch"},
      {"megatrain nothing ", ""},
  });
}

// New verbs, options and keys are completed without a change to completion.cc.
TEST(Completion, HasEveryVerbOptionAndKeyOfTheTables) {
  const std::string bash = bash_completion(), fish = fish_completion();
  for (const Verb& verb : verbs()) {
    EXPECT_NE(bash.find("'" + verb.name + "')"), std::string::npos) << verb.name;
    for (const std::string& option : verb.options)
      EXPECT_NE(bash.find(fmt::format("'{} {}')", verb.name, option)), std::string::npos) << option;
  }
  for (const ConfigKey& key : config_keys()) {
    EXPECT_NE(bash.find("--" + key.name), std::string::npos) << key.name;
    EXPECT_NE(fish.find("-l " + key.name), std::string::npos) << key.name;
    for (const std::string& word : key.choices) {
      TrainConfig config;
      EXPECT_TRUE(key.read(config, {.text = word})) << key.name << " " << word;
    }
  }
  EXPECT_TRUE(zsh_completion().starts_with("#compdef megatrain\n")) << "a file in fpath is of the command it names";
  expect_refusal({"completion", "tcsh"}, ExitCode::bad_config, {"tcsh", "bash, zsh or fish"});
}

}  // namespace megatrain::cli
