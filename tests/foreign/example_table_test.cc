// The tables in docs/coming-from.md that show what LLaMA-Factory's and Axolotl's example files become here.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/config/config.h"
#include "megatrain/train/optim_settings.h"
#include "tests/support/axolotl_examples.h"
#include "tests/support/chat_fixture.h"
#include "tests/support/foreign_file.h"
#include "tests/support/places.h"

namespace megatrain {
namespace {

constexpr const char* kTrainedHead = "| example | samples a step | steps | warmup | highest rate | last rate |";
constexpr const char* kRefusedHead = "| example | refused for |";

// The rows of the tables with this header, in order.
std::vector<std::string> rows_under(const std::string& head) {
  std::ifstream page(in_repository("docs/coming-from.md"));
  EXPECT_TRUE(page.good());
  std::vector<std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line == head) {
      inside = true;
      std::getline(page, line);  // the rule under the header
    } else if (inside && line.starts_with("|")) {
      rows.push_back(line);
    } else {
      inside = false;
    }
  }
  return rows;
}

std::string lines_of(const std::vector<std::string>& rows) { return fmt::format("{}\n", fmt::join(rows, "\n")); }

std::string row_of(const char* trainer, const std::string& name, const std::vector<std::string>& words,
                   const TrainConfig& config) {
  const LearningRate schedule = learning_rate_of(config);
  return fmt::format("| {}: {}{} | {} | {} | {} | {} | {:.3e} |", trainer, name,
                     words.empty() ? "" : fmt::format(", `{}`", fmt::join(words, " ")), config.batch, config.steps,
                     warmup_steps(schedule), config.optim.lr, learning_rate(schedule, config.steps));
}

// `rows` is the number of rows in an epoch.
template <class Rules>
void expect_rules(const TrainConfig& config, const Rules& theirs, int64_t rows) {
  const int64_t steps = theirs.steps(rows);
  EXPECT_EQ(config.batch, theirs.samples_a_step());
  EXPECT_EQ(config.steps, steps);
  EXPECT_EQ(warmup_steps(learning_rate_of(config)), theirs.warmup(steps));
  EXPECT_DOUBLE_EQ(learning_rate(learning_rate_of(config), steps), theirs.rate(steps - 1, steps));
}

class ExampleTable : public ChatFixture {
 protected:
  void SetUp() override {
    ChatFixture::SetUp();
    write_alpaca("identity.json", 91, "yes");
    write_alpaca("alpaca_en_demo.json", 999, "yes");
    write("dataset_info.json",
          R"({"identity": {"file_name": "identity.json"}, "alpaca_en_demo": {"file_name": "alpaca_en_demo.json"}})");
    write_alpaca("alpaca.jsonl", 2000, axolotl_answer());
    nlohmann::json chat = nlohmann::json::array(), text = nlohmann::json::array();
    for (int64_t i = 0; i < 2000; ++i) {
      chat.push_back({{"conversations",
                       {{{"from", "human"}, {"value", fmt::format("question {:04}", i)}},
                        {{"from", "gpt"}, {"value", axolotl_answer()}}}}});
      text.push_back({{"text", fmt::format("document {:04}", i)}});
    }
    write("chat.jsonl", chat.dump());
    write("text.jsonl", text.dump());
  }

  void write_alpaca(const std::string& name, int64_t samples, const std::string& answer) {
    nlohmann::json rows = nlohmann::json::array();
    for (int64_t i = 0; i < samples; ++i)
      rows.push_back({{"instruction", fmt::format("task {:04}", i)}, {"input", ""}, {"output", answer}});
    write(name, rows.dump());
  }

  // Sets the run's steps. Returns the rows of an epoch: samples or packed sequences.
  int64_t count_steps(TrainConfig& config) {
    TrainConfig here = config;
    here.model.path = "";
    here.model.config = at("model/config.json");
    here.data.tokenizer = at("model");
    here.data.chat_template = "";  // the tokenizer lacks the tokens of the named ones
    here.data.cache = at("cache");
    if (!here.data.info.empty())
      here.data.info = folder_.string();
    else
      for (DatasetChoice& choice : here.data.train) choice.path = at(choice.path);
    RunData data = open_data(here, model_source());
    config.steps = steps_of_run(config, *data.train);
    return data.train_samples->counts().sequences;
  }
};

TEST_F(ExampleTable, HasTheStepsRatesAndWarmupOfTheirRulesWhichAreOurs) {
  std::vector<std::string> rows;
  for (const Example& example : trained_examples()) {
    SCOPED_TRACE(example.name);
    TrainConfig config = parse(example.keys, example.words);
    if (config.data.packing) continue;  // packing gives another number of sequences than theirs
    const int64_t samples = count_steps(config);
    const TheirRules theirs(example.keys);
    expect_rules(config, theirs, samples);
    EXPECT_EQ(config.optim.lr, theirs.number("learning_rate", 5e-5));
    rows.push_back(row_of("LLaMA-Factory", example.name, example.words, config));
  }
  for (const AxolotlExample& example : axolotl_trained()) {
    SCOPED_TRACE(example.name);
    TrainConfig config = parse(example.keys);
    const int64_t sequences = count_steps(config);
    const AxolotlRules theirs(example.keys);
    expect_rules(config, theirs, sequences);
    EXPECT_EQ(config.optim.lr, theirs.given.number("learning_rate", 0));
    rows.push_back(row_of("Axolotl", example.name, {}, config));
  }
  EXPECT_EQ(lines_of(rows_under(kTrainedHead)), lines_of(rows));
}

TEST_F(ExampleTable, NamesTheMethodOfEveryFileThatIsRefused) {
  std::vector<std::string> rows;
  const auto add = [&](const char* trainer, const auto& example) {
    const std::string said = refusal(example.keys);
    const std::string asks = fmt::format("{} asks for {}, ", example.key, example.method);
    EXPECT_NE(said.find(asks), std::string::npos) << example.name << ": " << said;
    EXPECT_EQ(said.find("did you mean"), std::string::npos) << said;
    rows.push_back(fmt::format("| {}: {} | {} |", trainer, example.name, example.method));
  };
  for (const RefusedExample& example : refused_examples()) add("LLaMA-Factory", example);
  for (const AxolotlRefused& example : axolotl_refused()) add("Axolotl", example);
  EXPECT_EQ(lines_of(rows_under(kRefusedHead)), lines_of(rows));
}

}  // namespace
}  // namespace megatrain
