// A tiny model directory for text: bytes are tokens, ChatML is the template.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "megatrain/train/open_data.h"

namespace megatrain {

inline constexpr int32_t kPad = 256, kImStart = 257, kImEnd = 258;

// tokenizer.json whose id of a byte is the byte, and three special tokens behind.
inline nlohmann::json byte_tokenizer() {
  nlohmann::json vocab = nlohmann::json::object(), added = nlohmann::json::array();
  int32_t extra = 256;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool printed = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const int32_t point = printed ? byte : extra++;
    std::string text;
    if (point < 128) {
      text = static_cast<char>(point);
    } else {
      text = {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 63))};
    }
    vocab[text] = byte;
  }
  const char* const specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int32_t i = 0; i < 3; ++i)
    added.push_back({{"id", kPad + i},
                     {"content", specials[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocab},
            {"merges", nlohmann::json::array()}}}};
}

inline nlohmann::json chatml_config() {
  return {{"tokenizer_class", "PreTrainedTokenizerFast"},
          {"eos_token", "<|im_end|>"},
          {"pad_token", "<|endoftext|>"},
          {"chat_template",
           "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
           "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"}};
}

inline nlohmann::json byte_llama(int64_t hidden) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 264},
          {"hidden_size", hidden},
          {"intermediate_size", 2 * hidden},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},
          {"initializer_range", 0.02},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", false},
          {"rope_theta", 10000.0},
          {"torch_dtype", "float32"},
          {"eos_token_id", kImEnd},
          {"pad_token_id", kPad}};
}

class ChatFixture : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("chat_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "model");
    write("model/tokenizer.json", byte_tokenizer().dump());
    write("model/tokenizer_config.json", chatml_config().dump());
    write("model/config.json", byte_llama(32).dump());
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
  // Of many lengths, none above 128 tokens.
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
