// Byte-level BPE: the names that llama.cpp has for ways to cut text into words.
#include <string>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/gguf/vocabulary.h"
#include "megatrain/tokenizer/bpe.h"
#include "megatrain/tokenizer/tokenizer_json.h"
#include "megatrain/unicode/bytes.h"

namespace megatrain {
namespace {

using nlohmann::json;

// A pre-tokenizer is written down as its steps: "split PATTERN", "digits", "words" (ByteLevel's own pattern) and
// "bytes".
struct KnownPre {
  const char* name;
  std::vector<std::string> steps;
  bool ignores_merges;  // a word that is a token is that token, whatever the merges say
};

const std::vector<KnownPre>& known() {
  static const std::string contractions = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))", spaces = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::string words = R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)", marks = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|)";
  static const std::string lead = R"([^\r\n\p{L}\p{N}]?)", upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])",
                           lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])", paths = R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|)";
  static const std::string llama3 = contractions + words + R"(\p{N}{1,3})" + marks + spaces;
  static const std::string qwen2 = contractions + words + R"(\p{N})" + marks + spaces;
  static const std::string gpt4o = lead + upper + "*" + lower + "+" + contractions + "?|" + lead + upper + "+" + lower +
                                   "*" + contractions + R"(?|\p{N}{1,3})" + paths + spaces;
  static const std::string tekken =
      lead + upper + "*" + lower + "+|" + lead + upper + "+" + lower + R"(*|\p{N})" + paths + spaces;
  static const std::string deepseek3 =
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)" +
      spaces;
  static const std::vector<KnownPre> list = {
      {"llama-bpe", {"split " + llama3, "bytes"}, true},
      {"dbrx", {"split " + llama3, "bytes"}, false},
      {"qwen2", {"split " + qwen2, "bytes"}, false},
      {"gpt-4o", {"split " + gpt4o, "bytes"}, false},
      {"tekken", {"split " + tekken, "bytes"}, true},
      {"deepseek-v3", {R"(split \p{N}{1,3})", "split [一-龥\u3040-ゟ゠-ヿ]+", "split " + deepseek3, "bytes"}, false},
      {"smollm", {"digits", "words", "bytes"}, false},
      {"gpt-2", {"words", "bytes"}, false},
  };
  return list;
}

[[noreturn]] void refuse(const TokenizerFile& file, const std::string& what) {
  fail_input(fmt::format("{} {}; a GGUF file cannot say that to llama.cpp, so this tokenizer cannot be exported",
                         file.path, what));
}

std::vector<std::string> steps_of(const TokenizerFile& file) {
  std::vector<std::string> steps;
  const TokenizerNode root(file.json, file.path, "");
  for (const TokenizerNode& node : flatten_sequence(root.at("pre_tokenizer"), "pretokenizers")) {
    const std::string type = node.type();
    if (type == "Split" && node.at("pattern").has("Regex") && node.text("behavior") == "Isolated" &&
        !node.boolean("invert")) {
      steps.push_back("split " + node.at("pattern").text("Regex"));
    } else if (type == "Digits" && node.boolean("individual_digits")) {
      steps.emplace_back("digits");
    } else if (type == "ByteLevel") {
      if (node.boolean("add_prefix_space"))
        refuse(file, "puts a space before every text (ByteLevel's add_prefix_space)");
      if (node.boolean_or("use_regex", true)) steps.emplace_back("words");
      steps.emplace_back("bytes");
    } else {
      refuse(file, fmt::format("cuts text by a pre-tokenizer of type {}, in a way that llama.cpp has no name for",
                               printable(type)));
    }
  }
  return steps;
}

void check_normalizer(const TokenizerFile& file) {
  const TokenizerNode root(file.json, file.path, "");
  if (!root.has("normalizer")) return;
  for (const TokenizerNode& node : flatten_sequence(root.at("normalizer"), "normalizers")) {
    if (node.type() != "NFC") refuse(file, fmt::format("has a normalizer of type {}", printable(node.type())));
    log_info(
        "llama.cpp does not bring text into Unicode's form NFC as the model's tokenizer does: text with decomposed "
        "characters gets other tokens there");
  }
}

// Whether every token of the vocabulary is what the merges make of its text: then it does not matter whether they are
// asked.
bool merges_reach_every_token(const TokenizerFile& file) {
  json model = file.json.at("model");
  model["ignore_merges"] = false;
  const Bpe bpe(TokenizerNode(model, file.path, "model"), true);
  std::vector<ModelToken> tokens;
  std::string word;
  for (int32_t id = 0; id <= bpe.vocabulary().last_id(); ++id) {
    const std::string* token = bpe.vocabulary().token_of(id);
    word.clear();
    if (token == nullptr || !to_bytes(*token, word) || word.empty()) continue;  // none, or a special one
    tokens.clear();
    bpe.encode(word, tokens);
    if (tokens.size() != 1 || tokens.front().id != id) return false;
  }
  return true;
}

}  // namespace

std::string pre_tokenizer_name(const TokenizerFile& file) {
  check_normalizer(file);
  const TokenizerNode model(file.json.at("model"), file.path, "model");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text_or(affix, "").empty()) refuse(file, fmt::format("has a {}", affix));
  }
  const std::vector<std::string> steps = steps_of(file);
  const bool ignores = model.boolean_or("ignore_merges", false);
  const KnownPre* other = nullptr;
  for (const KnownPre& pre : known()) {
    if (pre.steps != steps) continue;
    if (pre.ignores_merges == ignores) return pre.name;
    other = &pre;
  }
  if (other == nullptr) refuse(file, "cuts text into words by a pattern that llama.cpp has no name for");
  if (!merges_reach_every_token(file))
    refuse(file, fmt::format("has \"ignore_merges\": {} and tokens that its merges do not make, which llama.cpp's {} "
                             "takes the other way",
                             ignores, other->name));
  return other->name;
}

std::vector<std::string> merge_texts(const TokenizerFile& file) {
  std::vector<std::string> texts;
  for (const json& merge : file.json.at("model").at("merges")) {
    if (merge.is_array()) {
      texts.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    } else if (const std::string& text = merge.get_ref<const std::string&>(); !text.starts_with("#version")) {
      texts.push_back(text);
    }
  }
  return texts;
}

}  // namespace megatrain
