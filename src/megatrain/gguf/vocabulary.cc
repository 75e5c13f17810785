#include "megatrain/gguf/vocabulary.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <unordered_set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/io/json_file.h"
#include "megatrain/tokenizer/config_tokens.h"
#include "megatrain/tokenizer/tokenizer_json.h"
#include "megatrain/tokenizer/unigram.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

// The format's numbers for token types (tokenizer.ggml.token_type).
enum class TokenKind : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

constexpr const char* kMark = "\xE2\x96\x81";  // ▁

std::string with_spaces(std::string text) {
  for (size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + 1)) text.replace(at, 3, " ");
  return text;
}

// <0x00> to <0xFF>
bool is_byte_token(const std::string& text) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && hex(text[3]) && hex(text[4]) && text[5] == '>';
}

// For Phi-3, llama.cpp requires these tokens, and strips white space after every special token except the last three.
bool is_phi3_tokenizer(const ModelText& text) {
  for (const char* token : {"</s>", "<unk>", "<s>", "<|endoftext|>"}) {
    if (text.tokenizer.id_of(token) < 0) return false;
  }
  for (const auto& [id, token] : text.tokenizer.added().by_id()) {
    const bool plain = token.content == "<unk>" || token.content == "<s>" || token.content == "<|endoftext|>";
    if (token.special && token.right_strip == plain) return false;
  }
  return true;
}

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;
};

Tokens tokens_of(const ModelText& text, int64_t vocab, bool pieces, const std::string& unknown) {
  const Tokenizer& tokenizer = text.tokenizer;
  Tokens tokens;
  std::unordered_set<std::string> seen;
  std::string stripping;
  for (int32_t id = 0; id < vocab; ++id) {
    const AddedToken* added = tokenizer.added().find(id);
    std::string token = added != nullptr ? added->content : tokenizer.token_of(id);
    TokenKind kind = TokenKind::normal;
    if (added != nullptr) {
      kind = added->special ? TokenKind::control : TokenKind::user_defined;
      // llama.cpp searches for such a token in the unmodified text, where spaces are not marks.
      if (pieces && !added->special) token = with_spaces(std::move(token));
      if (stripping.empty() && (added->left_strip || added->right_strip || added->single_word)) stripping = token;
    } else if (token.empty()) {
      token = fmt::format("[PAD{}]", id);
      kind = TokenKind::unused;
    } else if (pieces && is_byte_token(token)) {
      kind = TokenKind::byte;
    }
    if (pieces && token == unknown) kind = TokenKind::unknown;
    if (!seen.insert(token).second)
      fail_input(fmt::format("{}: two ids have the text {}, the second is {}; a GGUF file's tokens are all different",
                             text.path, printable(token), id));
    tokens.texts.push_back(std::move(token));
    tokens.kinds.push_back(static_cast<int32_t>(kind));
  }
  if (!stripping.empty() && !is_phi3_tokenizer(text))
    log_info(fmt::format(
        "the model's tokenizer takes white space beside {} (and words around it) into account, which llama.cpp "
        "does not: tokens may differ there",
        printable(stripping)));
  return tokens;
}

bool is_byte_level(const TokenizerFile& file) {
  const TokenizerNode root(file.json, file.path, "");
  if (!root.has("pre_tokenizer")) return false;
  const std::vector<TokenizerNode> steps = flatten_sequence(root.at("pre_tokenizer"), "pretokenizers");
  return !steps.empty() && steps.back().type() == "ByteLevel";
}

void check_byte_tokens(const ModelText& text, const std::string& path) {
  for (int byte = 0; byte < 256; ++byte) {
    if (text.tokenizer.id_of(fmt::format("<0x{:02X}>", byte)) < 0)
      fail_input(fmt::format(
          "{} lacks the token <0x{:02X}>; llama.cpp's tokenizer for SentencePiece needs all 256 of them", path, byte));
  }
}

// Records which tokens the post-processor adds around a text.
void add_surroundings(const ModelText& text, int32_t bos, const std::string& path, GgufMetadata& metadata) {
  const std::vector<int32_t> bare = text.tokenizer.encode("a", false), all = text.tokenizer.encode("a", true);
  std::vector<int32_t> expected = bare;
  const bool begins = bos >= 0 && !all.empty() && all.front() == bos && (bare.empty() || bare.front() != bos);
  const bool ends =
      text.eos >= 0 && !all.empty() && all.back() == text.eos && (bare.empty() || bare.back() != text.eos);
  if (begins) expected.insert(expected.begin(), bos);
  if (ends) expected.push_back(text.eos);
  if (all != expected)
    fail_input(
        fmt::format("{}: post_processor puts other tokens around a text than bos_token before and eos_token after it; "
                    "llama.cpp supports only these two",
                    path));
  metadata.add("tokenizer.ggml.add_bos_token", begins);
  metadata.add("tokenizer.ggml.add_eos_token", ends);
}

// The special token that the post-processor puts before a text; -1 if there is none.
int32_t first_of_template(const Tokenizer& tokenizer) {
  const std::vector<int32_t> bare = tokenizer.encode("a", false), all = tokenizer.encode("a", true);
  const bool added = all.size() > bare.size() && (bare.empty() || all.front() != bare.front());
  return added && tokenizer.is_special(all.front()) ? all.front() : -1;
}

int32_t named_token(const nlohmann::json& config, const char* key, const Tokenizer& tokenizer) {
  if (!config.contains(key)) return -1;
  const nlohmann::json& value = config.at(key);
  if (value.is_string()) return tokenizer.id_of(value.get<std::string>());
  if (value.is_object() && value.contains("content") && value.at("content").is_string())
    return tokenizer.id_of(value.at("content").get<std::string>());
  return -1;
}

void add_special_tokens(const ModelText& text, const std::string& directory, const std::string& path,
                        const std::string& unknown, int64_t vocab, GgufMetadata& metadata) {
  const nlohmann::json config = TokenizerConfigFiles::read(directory).named();
  int32_t bos = named_token(config, "bos_token", text.tokenizer);
  if (bos < 0) bos = first_of_template(text.tokenizer);
  const auto add = [&](const char* name, int32_t id) {
    if (id >= 0 && id < vocab) metadata.add(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(id));
  };
  add("bos", bos);
  add("eos", text.eos);
  if (text.eos < 0)
    log_warn(
        fmt::format("{} names no token that ends a text (eos_token of tokenizer_config.json); llama.cpp takes one of "
                    "its own choice for it",
                    directory));
  const int32_t named = named_token(config, "unk_token", text.tokenizer);
  add("unknown", named >= 0 ? named : text.tokenizer.id_of(unknown));
  add("padding", named_token(config, "pad_token", text.tokenizer));
  // Tokens besides eos that end an answer; the one that ends a turn of the chat template comes first.
  std::vector<int32_t> ends;
  for (const bool of_turn : {true, false}) {
    for (const int32_t id : text.chat_end_ids) {
      if (id != text.eos && text.end_ids.contains(id) != of_turn) ends.push_back(id);
    }
  }
  constexpr std::array<const char*, 2> kNames = {"eot", "eom"};
  for (size_t i = 0; i < ends.size(); ++i) {
    if (i < kNames.size()) {
      add(kNames[i], ends[i]);
    } else {
      log_warn(fmt::format("the token {} ends an answer too, which a GGUF file has no place for",
                           printable(text.tokenizer.token_of(ends[i]))));
    }
  }
  add_surroundings(text, bos, path, metadata);
}

void add_templates(const ModelText& text, GgufMetadata& metadata) {
  if (!text.chat_template) return;
  std::vector<std::string> names;
  for (const auto& [name, source] : text.chat_template->sources()) {
    if (name == "default") {
      metadata.add("tokenizer.chat_template", source);
    } else {
      names.push_back(name);
      metadata.add("tokenizer.chat_template." + name, source);
    }
  }
  if (!names.empty()) metadata.add("tokenizer.chat_templates", names);
}

}  // namespace

std::string name_for_llama(const std::string& name, const ModelText& text) {
  std::string lower = name, other = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool called = lower.find("phi-3") != std::string::npos || lower.find("phi3") != std::string::npos;
  if (called == is_phi3_tokenizer(text)) return name;
  if (!called) return name + " (phi-3)";
  for (size_t at = lower.find("phi"); at != std::string::npos; at = lower.find("phi", at + 1)) other[at + 2] = '_';
  return other;
}

void add_vocabulary(const ModelText& text, int64_t vocab, GgufMetadata& metadata) {
  const bool directory = fs::is_directory(text.path);
  const std::string path = directory ? text.path + "/tokenizer.json" : text.path;
  const TokenizerFile file{path, read_json_file(path)};
  const nlohmann::json& model = file.json.at("model");
  if (is_unigram(TokenizerNode(model, path, "model")))
    fail_input(
        fmt::format("{} is a Unigram tokenizer, which megatrain cannot write for llama.cpp; it cannot be "
                    "exported",
                    path));
  const bool pieces = TokenizerNode(model, path, "model").boolean_or("byte_fallback", false);
  if (!pieces && !is_byte_level(file))
    fail_input(fmt::format(
        "{} is neither a byte-level BPE (GPT-2, Llama 3, Qwen) nor a SentencePiece BPE with byte_fallback (Llama "
        "2, Mistral, Gemma), the two that llama.cpp has; it cannot be exported",
        path));
  if (text.tokenizer.vocab_size() > vocab)
    log_warn(fmt::format("{} has {} tokens and the model {} rows; the tokens above are left out", path,
                         text.tokenizer.vocab_size(), vocab));

  metadata.add("tokenizer.ggml.model", std::string(pieces ? "llama" : "gpt2"));
  metadata.add("tokenizer.ggml.pre", pieces ? std::string("default") : pre_tokenizer_name(file));
  std::string unknown;
  if (model.contains("unk_token") && model.at("unk_token").is_string())
    unknown = model.at("unk_token").get<std::string>();
  Tokens tokens = tokens_of(text, vocab, pieces, unknown);
  metadata.add("tokenizer.ggml.tokens", std::move(tokens.texts));
  metadata.add("tokenizer.ggml.token_type", std::move(tokens.kinds));
  if (pieces) {
    check_byte_tokens(text, path);
    metadata.add("tokenizer.ggml.scores", piece_scores(file, text.tokenizer, vocab));
    metadata.add("tokenizer.ggml.add_space_prefix", piece_space_prefix(file));
  } else {
    metadata.add("tokenizer.ggml.merges", merge_texts(file));
  }
  add_special_tokens(text, directory ? text.path : fs::path(text.path).parent_path().string(), path, unknown, vocab,
                     metadata);
  add_templates(text, metadata);
}

}  // namespace megatrain
