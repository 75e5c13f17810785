// A tiny model directory for text, without weights: a token is a byte, the template is ChatML.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "megatrain/io/json.h"
#include "tests/support/added_token.h"

namespace megatrain {

inline constexpr int32_t kPad = 256, kImStart = 257, kImEnd = 258;

// A tokenizer.json in which a byte's id is the byte, followed by three special tokens.
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
  for (int32_t i = 0; i < 3; ++i) added.push_back(added_token(kPad + i, specials[i]));
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

inline nlohmann::json byte_llama(int64_t hidden, int64_t layers) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 264},
          {"hidden_size", hidden},
          {"intermediate_size", 3 * hidden},
          {"num_hidden_layers", layers},
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

// Writes config.json, tokenizer.json and tokenizer_config.json.
inline void write_byte_model(const std::string& directory, int64_t hidden, int64_t layers) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/config.json") << byte_llama(hidden, layers).dump(1) << "\n";
  std::ofstream(directory + "/tokenizer.json") << byte_tokenizer().dump() << "\n";
  std::ofstream(directory + "/tokenizer_config.json") << chatml_config().dump(1) << "\n";
}

}  // namespace megatrain
