// The table of verbs.
#include "megatrain/cli/verbs.h"

#include <set>

#include "megatrain/base/error.h"
#include "tests/support/command.h"

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
    expect_error(ExitCode::bad_config, {"'--optim.lr=1'", "megatrain " + verb.name},
                 [&] { const Arguments refused({"--optim.lr=1"}, verb); });
  }
}

TEST(Verbs, AVerbOfTwoWordsIsFoundBeforeTheOneOfItsFirst) {
  EXPECT_EQ(succeed({"inspect", "data", "--help"}).out.rfind("megatrain inspect data CONFIG.yaml", 0), 0u);
  EXPECT_EQ(succeed({"inspect", "--help"}).out.rfind("megatrain inspect MODEL|RUN", 0), 0u);
}

TEST(Verbs, AVerbThatIsMistypedIsSuggested) {
  const auto refused = [](const Words& words, std::initializer_list<std::string> parts) {
    expect_refusal(words, ExitCode::bad_config, parts);
  };
  refused({"trian", "a.yaml"}, {"unknown command 'trian'", "did you mean 'train'?"});
  refused({"evla"}, {"did you mean 'eval'?"});
  refused({"inspekt"}, {"did you mean 'inspect'?"});
  refused({"runs/chat.yaml"}, {"megatrain train runs/chat.yaml"});
  EXPECT_EQ(megatrain({"zzzz"}).err.find("did you mean"), std::string::npos);
  refused({"generate", "m", "--promt", "x"}, {"'--promt' is not an option", "did you mean '--prompt'?"});
  EXPECT_EQ(megatrain({"generate", "m", "--optim.lrr", "x"}).err.find("did you mean"), std::string::npos);
  for (const char* const same : {"--help=optim", "--data=a.jsonl"})
    EXPECT_EQ(megatrain({"train", "a.yaml", same}).err.find("did you mean"), std::string::npos) << "the word itself";
}

TEST(Verbs, TheHelpOfKeysIsByGroupAndOneGroupOrKeyCanBeAskedFor) {
  const std::string all = succeed({"train", "--help"}).out, optim = succeed({"train", "--help", "optim"}).out;
  size_t last = 0;
  for (const char* part : {"\nmodel: ", "\ndata: ", "\noptim: ", "\ncheckpoint: "}) {
    const size_t at = all.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    EXPECT_GT(at, last) << part;
    last = at;
  }
  EXPECT_NE(optim.find("  optim.schedule\n"), std::string::npos) << optim;
  EXPECT_NE(optim.find("Accepts constant or linear"), std::string::npos) << optim;
  EXPECT_EQ(optim.find("data.train"), std::string::npos) << optim;
  EXPECT_EQ(succeed({"help", "train", "optim"}).out, optim);
  EXPECT_EQ(succeed({"train", "--help", "optim.lr"}).out.rfind("  optim.lr\n", 0), 0u);
  expect_refusal({"train", "--help", "optin"}, ExitCode::bad_config, {"'optin'", "did you mean", "groups are"});
  EXPECT_EQ(succeed({"help", "train"}).out, all);
}

TEST(Verbs, AHelpOrAScriptThatCannotBeWrittenIsExitCode5) {
  for (const Words& words : {Words{"train", "--help"}, Words{"--help"}, Words{"--version"}, Words{"inspect", "--help"},
                             Words{"completion", "bash"}, Words{"completion", "zsh"}, Words{"completion", "fish"}}) {
    const Outcome outcome = Process(words, "", "exec \"$0\" \"$@\" >/dev/full").wait();
    EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::io)) << words[0];
    EXPECT_NE(outcome.err.find("could not be written to standard output: No space left"), std::string::npos)
        << words[0] << ": " << outcome.err;
  }
}

TEST(Verbs, AReaderThatLeavesAHelpOrAScriptEarlyIsNoError) {
  // The FIFO has no reader any more when the program starts.
  const std::string shell =
      "mkfifo \"$1/pipe\" && exec 3<>\"$1/pipe\" 4>\"$1/pipe\" 3>&- && shift && exec \"$0\" \"$@\" >&4";
  for (const Words& words :
       {Words{"train", "--help"}, Words{"--version"}, Words{"completion", "bash"}, Words{"completion", "fish"}}) {
    const TemporaryDirectory place;
    Words all = {place.path()};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = Process(all, "", shell).wait();
    EXPECT_EQ(outcome.code, 0) << words[0] << ": " << outcome.err;
    EXPECT_EQ(outcome.err, "") << words[0];
  }
}

TEST(Verbs, AFileOfAnotherKindIsNoConfigurationAndItsKeyIsNamed) {
  const TemporaryDirectory place;
  const std::string model = golden("llama_linear") + "/model/config.json", data = place / "chat.jsonl";
  write_bytes(data, "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  for (const char* verb : {"train", "prepare"}) {
    expect_refusal({verb, model}, ExitCode::bad_config,
                   {"is the configuration of a model", "'model.config: " + model + "'"});
    expect_refusal({verb, data}, ExitCode::bad_config, {"looks like data", "'data.train: " + data + "'"});
  }
  write_bytes(place / "train.yaml", fmt::format("model.config: {}\ndata.train: {}\nsteps: 1\n", model, data));
  expect_refusal({"train", place / "train.yaml", "--data.tokenizer=" + model}, ExitCode::bad_config,
                 {"data.tokenizer is " + model, "not a tokenizer.json"});
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
