// A tiny model that can chat: a golden's weights, a tokenizer with one token per character, and a chat template.
#pragma once

#include "tests/support/added_token.h"
#include "tests/support/command.h"
#include "tests/support/places.h"

namespace megatrain::cli {

// Ids 0 to 2 are special, and 2 (<|end|>) ends a text; then space, a to z, 0 to 9 and A to X.
inline const std::string kCharacters = " abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWX";

inline std::string text_of(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) {
    if (id >= 3) text += kCharacters.at(static_cast<size_t>(id - 3));
  }
  return text;
}

inline json tiny_tokenizer() {
  json vocab = {{"<pad>", 0}, {"<s>", 1}, {"<|end|>", 2}}, added = json::array();
  for (const auto& [token, id] : vocab.items()) added.push_back(added_token(id, token));
  for (size_t i = 0; i < kCharacters.size(); ++i)
    vocab[kCharacters[i] == ' ' ? "\u0120" : std::string(1, kCharacters[i])] = i + 3;
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", bytes},
          {"post_processor", bytes},
          {"decoder", bytes},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", json::array()}}}};
}

inline const char* const kChatTemplate =
    "{% for message in messages %}{{ message['role'] + ' ' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}";

class SpeakingModel {
 public:
  explicit SpeakingModel(const std::string& name = "llama_linear", bool chat = true) : name_(name) {
    fs::copy(golden(name) + "/model", path(), fs::copy_options::recursive);
    write_bytes(path() + "/tokenizer.json", tiny_tokenizer().dump());
    json config = {{"eos_token", "<|end|>"}};
    if (chat) config["chat_template"] = kChatTemplate;
    write_bytes(path() + "/tokenizer_config.json", config.dump());
  }

  std::string path() const { return directory_ / "model"; }
  std::string operator/(const std::string& name) const { return directory_ / name; }

  // A prompt and transformers' greedy answer to it, ignoring end tokens.
  std::vector<int32_t> golden_prompt(size_t i) const { return expected().at(i).at("prompt"); }
  std::vector<int32_t> golden_ids(size_t i) const { return expected().at(i).at("ids"); }

  Words words(const Words& more, const std::string& verb = "generate") const {
    Words all = {verb, path(), "--device=cpu", "--threads=1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  json generate(const Words& more) const {
    Words all = words(more);
    all.push_back("--json");
    return json::parse(succeed(all).out);
  }

  // Changes a field of one of the model's JSON files.
  void set(const std::string& file, const std::string& key, const json& value) const {
    const std::string at = path() + "/" + file;
    json content = fs::exists(at) ? json::parse(read_bytes(at)) : json::object();
    content[key] = value;
    write_bytes(at, content.dump());
  }
  // No token ends a chat answer, which then continues for minutes.
  void make_endless() const {
    set("config.json", "max_position_embeddings", 200000);
    set("config.json", "eos_token_id", nullptr);
    set("tokenizer_config.json", "eos_token", nullptr);
    set("tokenizer_config.json", "chat_template",
        "{% for message in messages %}{{ message['role'] + ' ' + message['content'] + ' ' }}{% endfor %}");
  }
  void remove(const std::string& file) const { fs::remove(path() + "/" + file); }

 private:
  json expected() const { return json::parse(read_bytes(in_repository("tests/generate/goldens.json"))).at(name_); }

  TemporaryDirectory directory_;
  std::string name_;
};

}  // namespace megatrain::cli
