// A folder with a tiny model for text, and what runs on it need.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "megatrain/data/open_data.h"
#include "megatrain/io/json.h"
#include "tests/support/byte_model.h"

namespace megatrain {

class ChatFixture : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("chat_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    write_byte_model(at("model"), 32, 2);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  static std::string conversation(const std::string& question, const std::string& answer) {
    return nlohmann::json{
               {"messages", {{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}}}}
               .dump() +
           "\n";
  }
  // With many lengths, none above 128 tokens.
  static std::string conversations(int64_t count, int64_t first = 0) {
    std::string lines;
    for (int64_t i = first; i < first + count; ++i)
      lines +=
          conversation("question " + std::to_string(i), std::string(1 + i * 7 % 60, static_cast<char>('a' + i % 26)));
    return lines;
  }

  TrainConfig chat_config() const {
    TrainConfig config;
    config.model.config = at("model/config.json");
    config.data.tokenizer = at("model");
    config.data.cache = at("cache");
    config.device = "cpu";
    config.precision = "fp32";
    config.seq_len = 128;
    config.batch = config.micro_batch = 2;
    config.run_dir = at("run");
    return config;
  }
  ModelSource model_source() const { return read_model_source(chat_config()); }

  std::filesystem::path folder_;
};

}  // namespace megatrain
