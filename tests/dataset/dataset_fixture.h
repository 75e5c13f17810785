// Datasets, the tokenizer side of a model, and a cache, in a temporary folder.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "megatrain/base/error.h"
#include "megatrain/dataset/tokenize_dataset.h"
#include "megatrain/io/json.h"
#include "tests/support/places.h"
#include "tests/support/template_goldens.h"
#include "tests/support/tokenizer_goldens.h"

namespace megatrain::testing {

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline nlohmann::json dataset_golden(const std::string& name) {
  return nlohmann::json::parse(read_bytes(in_repository("tests/dataset/goldens/") + name));
}

inline const Tokenizer& small_qwen() {
  static const Tokenizer tokenizer = Tokenizer::from_file(golden_path("qwen.tokenizer.json"));
  return tokenizer;
}

inline ChatTemplate template_of(const std::string& name) {
  return ChatTemplate(golden::read_text("templates/" + name + ".jinja"), name,
                      {{"bos_token", "<s>"}, {"eos_token", "<|im_end|>"}});
}

inline const ChatTemplate& chatml() {
  static const ChatTemplate chat = template_of("chatml");
  return chat;
}

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("megatrain-dataset-{}-{}", ::getpid(),
                            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~DatasetTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return path(name);
  }

  TextCoder model(const ChatTemplate* chat = &chatml()) const {
    return {.tokenizer = small_qwen(),
            .tokenizer_identity = "qwen",
            .chat_template = chat,
            .template_identity = "chatml",
            .eos = small_qwen().id_of("<|endoftext|>")};
  }

  TokenizeOptions options() const { return {.cache_directory = path("cache"), .threads = 2}; }

  SampleStore tokenized(const Dataset& dataset) const { return tokenize(dataset, model(), options()).value(); }
  SampleStore tokenized(const std::string& file, const TokenizeOptions& how) const {
    return tokenize(open_dataset(file), model(), how).value();
  }
  SampleStore tokenized(const std::string& file) const { return tokenized(file, options()); }

  // The text of the sample, with trained parts in [brackets].
  static std::string shown(const SampleStore& store, int64_t sample) {
    std::string text;
    std::vector<int32_t> ids;
    bool trained = false;
    const auto flush = [&] {
      const std::string part = small_qwen().decode(ids, false);
      if (!ids.empty()) text += trained ? "[" + part + "]" : part;
      ids.clear();
    };
    for (const uint32_t entry : store.entries(sample)) {
      if (((entry & kTrainedBit) != 0) != trained) flush();
      trained = (entry & kTrainedBit) != 0;
      ids.push_back(static_cast<int32_t>(entry & kTokenMask));
    }
    flush();
    return text;
  }

  std::vector<std::string> shown(const SampleStore& store) const {
    std::vector<std::string> all;
    for (int64_t i = 0; i < store.samples(); ++i) all.push_back(shown(store, i));
    return all;
  }

  // The error message; empty if it does not fail.
  static std::string refusal(const std::function<void()>& deed, ExitCode code = ExitCode::bad_input) {
    try {
      deed();
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
  }

  static std::map<std::string, std::string> bytes_of(const SampleStore& store) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(store.directory())) {
      files[entry.path().filename().string()] = read_bytes(entry.path());
    }
    return files;
  }

  std::filesystem::path folder_;
};

// A ChatML turn.
inline std::string turn(const std::string& role, const std::string& text) {
  return "<|im_start|>" + role + "\n" + text + "<|im_end|>\n";
}
inline std::string answer(const std::string& text) { return "<|im_start|>assistant\n[" + text + "<|im_end|>]\n"; }

}  // namespace megatrain::testing
