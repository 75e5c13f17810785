// docs/mistakes.md and docs/plan-questions.md are goldens: every command block in them is run and must print what the
// page shows.
#include <regex>

#include "tests/support/command.h"
#include "tests/support/places.h"

namespace megatrain::cli {

namespace {

struct Block {
  std::string title;
  std::string commands;               // a line each
  std::vector<std::string> expected;  // lines; "…" within a line is any text, alone it is any number of lines
};

struct Page {
  std::string yaml;  // train.yaml of the page
  std::vector<Block> blocks;
};

Page read_page(const std::string& path) {
  Page page;
  std::ifstream file(in_repository(path));
  std::string title, fence;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      fence = fence.empty() ? line.substr(3) : "";
      if (fence == "console") page.blocks.push_back({.title = title, .commands = "", .expected = {}});
    } else if (fence == "yaml") {
      page.yaml += line + "\n";
    } else if (fence == "console" && line.starts_with("$ ")) {
      page.blocks.back().commands += line.substr(2) + "\n";
    } else if (fence == "console") {
      page.blocks.back().expected.push_back(line);
    } else if (line.starts_with("**")) {
      title = line;
    }
  }
  return page;
}

// The expected lines as a pattern for the whole output.
std::regex pattern_of(const std::vector<std::string>& lines) {
  static const std::regex kSpecial(R"([.^$|()\[\]{}*+?\\])");
  std::string pattern;
  for (const std::string& line : lines) {
    if (line == "…") {
      pattern += "(?:.*\n)*?";
      continue;
    }
    std::string escaped = std::regex_replace(line, kSpecial, R"(\$&)");
    for (size_t at = 0; (at = escaped.find("…", at)) != std::string::npos; at += 2)
      escaped.replace(at, std::string("…").size(), ".*");
    pattern += escaped + "\n";
  }
  return std::regex(pattern);
}

// What a shell prints that runs the block in its own folder, set up as the page describes.
std::string output_of(const Block& block, const std::string& yaml) {
  const TemporaryDirectory place;
  const std::string examples = in_repository("examples/chat");
  fs::create_directories(place / "work");
  fs::create_directories(place / "bin");
  fs::create_symlink(program(), place / "bin/megatrain");
  fs::copy(examples + "/model", place / "work/model");
  write_bytes(place / "work/train.yaml", yaml);
  std::ifstream train(examples + "/train.jsonl");
  std::string samples, line;
  for (int i = 0; i < 20 && std::getline(train, line); ++i) samples += line + "\n";
  write_bytes(place / "work/chat.jsonl", samples);
  write_bytes(place / "block", block.commands + "echo \"exit code $?\"\n");
  return Process(
             {place.path()}, "",
             "cd \"$1/work\" && PATH=\"$1/bin:$PATH\" HF_HUB_CACHE=\"$1/hub\" XDG_CACHE_HOME=\"$1/caches\" exec bash "
             "../block 2>&1")
      .wait()
      .out;
}

void expect_page(const std::string& path, size_t least) {
  const Page page = read_page(path);
  EXPECT_GE(page.blocks.size(), least);
  for (const Block& block : page.blocks) {
    ASSERT_FALSE(block.expected.empty()) << block.title;
    EXPECT_TRUE(block.expected.back().starts_with("exit code ")) << block.title;
    const std::string output = output_of(block, page.yaml);
    EXPECT_TRUE(std::regex_match(output, pattern_of(block.expected))) << block.title << "\nprints\n" << output;
  }
}

}  // namespace

TEST(Mistakes, EachOfThePageSaysWhatStandsThere) { expect_page("docs/mistakes.md", 60); }

TEST(PlanQuestions, EachOfThePageIsAnsweredAsItStandsThere) { expect_page("docs/plan-questions.md", 20); }

}  // namespace megatrain::cli
