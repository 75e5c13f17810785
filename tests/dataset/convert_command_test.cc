// A command printed for pasting is parsed by the shell into the intended words, whatever the files are called.
#include "megatrain/dataset/convert_command.h"

#include <cstdio>

#include "megatrain/chat/model_text.h"
#include "tests/dataset/dataset_fixture.h"

namespace megatrain {
namespace {

class ConvertCommandTest : public testing::DatasetTest {
 protected:
  // The words that a shell parses from the command, one per line.
  std::string words(const std::string& command) const {
    const std::string script = write("script", "cd " + folder_.string() + "\nprintf '%s\\n' " + command + "\n");
    FILE* const pipe = ::popen(("bash " + script).c_str(), "r");
    std::string out;
    char buffer[4096];
    while (const size_t bytes = std::fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, bytes);
    EXPECT_EQ(::pclose(pipe), 0) << command;
    return out;
  }
  // The command within a sentence that ends in ", and give OUT."
  static std::string command_in(const std::string& sentence, const std::string& begin) {
    const size_t from = sentence.find(begin), to = sentence.rfind(", and give ");
    EXPECT_TRUE(from != std::string::npos && to != std::string::npos) << sentence;
    return sentence.substr(from, to - from);
  }
};

TEST_F(ConvertCommandTest, NoNameOfAFileIsReadAsCode) {
  for (const std::string name : {"x'$(touch PWNED)'", "a b", "\"; import os; \"", "`touch PWNED`", "-x", "ü;&|\n"}) {
    const std::string file = name + ".csv", out = name + ".jsonl";
    const std::string said = words(python_command("print(\"x\")", file, out));
    EXPECT_EQ(said, "python3\n-c\nprint(\"x\")\n" + file + "\n" + out + "\n");
    EXPECT_EQ(words(unpack_command("gunzip -c", file, "out")), "");
    EXPECT_EQ(testing::read_bytes(path("out")), "gunzip\n-c\n" + std::string(name == "-x" ? "./" : "") + file + "\n");
    EXPECT_FALSE(std::filesystem::exists(path("PWNED"))) << name;
  }
}

TEST_F(ConvertCommandTest, EveryFormatThatIsNotReadIsConvertedByACommandWithItsName) {
  for (const auto& [ending, opened] :
       std::map<std::string, std::string>{{".xlsx", "pandas.read_excel(sys.argv[1], dtype=str, keep_default_na=False)"},
                                          {".orc", "pandas.read_orc(sys.argv[1])"}}) {
    const std::string file = write("x'$(touch PWNED)'" + ending, "x");
    const std::string said = refusal([&] { open_dataset(file); });
    const std::string taken = words(command_in(said, "python3 -c "));
    EXPECT_NE(taken.find(opened + ".to_json(sys.argv[2]"), std::string::npos) << said;
    EXPECT_TRUE(taken.ends_with("\n" + file + "\n" + path("x'$(touch PWNED)'.jsonl") + "\n")) << taken;
  }
  EXPECT_FALSE(std::filesystem::exists(path("PWNED")));
}

TEST_F(ConvertCommandTest, AModelsFolderIsAWordToo) {
  write("x'$(touch PWNED)'/tokenizer.model", "x");
  const std::string folder = path("x'$(touch PWNED)'");
  const std::string said = refusal([&] { ModelText::load(folder); });
  const std::string taken = words(said.substr(std::min(said.size(), said.find("python3 -c "))));
  EXPECT_TRUE(taken.ends_with("T.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])\n" + folder + "\n"))
      << taken;
  EXPECT_FALSE(std::filesystem::exists(path("PWNED")));
}

TEST_F(ConvertCommandTest, WhatIsNoNameOfTheHubGetsNoCommand) {
  for (const char* const name : {"org/na;me", "-org/name", "org/a b"})
    EXPECT_EQ(refusal([&] { open_dataset(name); }), fmt::format("no such file or folder: {}; check the path.", name));
  write("info/dataset_info.json", "{\"d\": {\"hf_hub_url\": \"org/$(touch x)\"}}");
  const std::string said = refusal([&] { open_dataset("d", path("info")); });
  EXPECT_NE(said.find("download it: hf download 'org/$(touch x)' --repo-type dataset --local-dir 'data/$(touch x)', "),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace megatrain
