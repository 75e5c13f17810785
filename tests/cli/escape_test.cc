// Text from files reaches the terminal as text, never as control sequences.
#include <algorithm>

#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

const std::string kHostile = "\x1b]0;owned\x07\x1b[2J\u009b31m";

void expect_no_controls(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    EXPECT_TRUE((byte >= 0x20 && byte != 0x7F) || byte == '\n' || byte == '\t') << text;
    if (byte == 0xC2) {
      EXPECT_GE(static_cast<unsigned char>(text[i + 1]), 0xA0) << text;
    }
  }
}

// The program quotes the hostile text, escaped.
void expect_escaped(const Words& words, const std::string& input = "") {
  const Outcome outcome = megatrain(words, input);
  EXPECT_NE((outcome.out + outcome.err).find("owned"), std::string::npos) << outcome.err;
  expect_no_controls(outcome.out);
  expect_no_controls(outcome.err);
}

}  // namespace

TEST(Messages, ShowKeysAndValuesOfAConfigurationEscaped) {
  const TemporaryDirectory directory;
  const std::string file = directory / "c.yaml";
  write_bytes(file, R"("\e]0;owned\a\e[2J": 1)");
  expect_escaped({"train", file});
  write_bytes(file, R"(steps: "\e]0;owned\a\N\x9b31m")");
  expect_escaped({"train", file});
}

TEST(Messages, AreOneLineOfALengthAPersonReads) {
  const TemporaryDirectory directory;
  const std::string file = directory / "c.yaml";
  for (const std::string& value : {std::string(R"(x\nmegatrain: everything is fine)"), std::string(100'000, 'x')}) {
    write_bytes(file, "steps: \"" + value + "\"\n");
    const Outcome outcome = megatrain({"train", file});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err.substr(0, 4000);
    EXPECT_LT(outcome.err.size(), 2'100u);
  }
}

TEST(Messages, ShowPathsEscaped) {
  const TemporaryDirectory directory;
  for (const char* verb : {"train", "hash", "inspect", "report", "plan"}) {
    expect_escaped({verb, directory / kHostile});
  }
  expect_escaped({kHostile});
  expect_escaped({"bench", kHostile});
}

TEST(Messages, ShowNamesOfAModelEscaped) {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "model");
  write_bytes(directory / "model/config.json", json{{"architectures", {kHostile}}, {"model_type", kHostile}}.dump());
  const json header = {{kHostile, {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4}}}}};
  write_bytes(directory / "model/model.safetensors", safetensors_bytes(header.dump(), std::string(4, '\0')));
  expect_escaped({"inspect", directory / "model", "--tensors"});
  write_bytes(directory / "model/model.safetensors", safetensors_bytes(header.dump(), ""));
  expect_escaped({"hash", directory / "model"});
}

}  // namespace megatrain::cli
