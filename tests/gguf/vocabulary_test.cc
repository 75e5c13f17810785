#include "megatrain/gguf/vocabulary.h"

#include <algorithm>

#include "tests/gguf/fixtures.h"
#include "tests/support/added_token.h"

namespace megatrain {
namespace {

using nlohmann::json;

// What add_vocabulary() writes, read back from a file.
json metadata_of(const TemporaryDirectory& directory, const ModelText& text, int64_t vocab = 0) {
  GgufMetadata metadata;
  add_vocabulary(text, vocab > 0 ? vocab : text.tokenizer.vocab_size(), metadata);
  const std::string path = directory / "vocabulary.gguf";
  GgufFile(path, metadata, {}).finish();
  json read = read_gguf(path).metadata;
  std::filesystem::remove(path);
  return read;
}

void expect_refused(const std::string& name, std::initializer_list<std::string> parts,
                    const TokenizerChange& change = {}) {
  const TemporaryDirectory directory;
  const ModelText text = text_of(directory, name, change);
  GgufMetadata metadata;
  expect_error(ExitCode::bad_input, parts, [&] { add_vocabulary(text, text.tokenizer.vocab_size(), metadata); });
}

// Adds the token, unless the file has one with the same content.
void add_missing(json& file, const json& token) {
  json& added = file["added_tokens"];
  const auto same = [&](const json& other) { return other.at("content") == token.at("content"); };
  if (std::none_of(added.begin(), added.end(), same)) added.push_back(token);
}

TokenizerChange space_as(const char* scheme) {
  return [scheme](json& file) {
    list_all_merges(file);
    file["normalizer"] = nullptr;
    file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", false}};
  };
}

}  // namespace

TEST(GgufVocabulary, KnowsByteLevelPatternsByTheirNames) {
  for (const auto& [file, name] :
       std::map<std::string, std::string>{{"llama3", "llama-bpe"}, {"qwen", "qwen2"}, {"deepseek", "deepseek-v3"}}) {
    const TemporaryDirectory directory;
    const ModelText text = text_of(directory, file);
    const json told = metadata_of(directory, text);
    EXPECT_EQ(told.at("tokenizer.ggml.model"), "gpt2");
    EXPECT_EQ(told.at("tokenizer.ggml.pre"), name);
    EXPECT_EQ(std::ssize(told.at("tokenizer.ggml.tokens")), text.tokenizer.vocab_size());
    for (int32_t id = 0; id < text.tokenizer.vocab_size(); ++id) {
      EXPECT_EQ(told.at("tokenizer.ggml.tokens")[static_cast<size_t>(id)], text.tokenizer.token_of(id));
      EXPECT_EQ(told.at("tokenizer.ggml.token_type")[static_cast<size_t>(id)],
                text.tokenizer.added().find(id) == nullptr ? 1
                : text.tokenizer.is_special(id)            ? 3
                                                           : 4);
    }
    const json merges = json::parse(read_bytes(directory / "tokenizer.json")).at("model").at("merges");
    ASSERT_EQ(told.at("tokenizer.ggml.merges").size(), merges.size());
    for (size_t i = 0; i < merges.size(); ++i)
      EXPECT_EQ(made_by(told.at("tokenizer.ggml.merges")[i]), made_by(merges[i]));
  }
}

TEST(GgufVocabulary, TakesGpt2sWordsWithoutASpaceBeforeTheText) {
  const TemporaryDirectory directory;
  const ModelText text =
      text_of(directory, "gpt2", [](json& file) { file["pre_tokenizer"]["add_prefix_space"] = false; });
  EXPECT_EQ(metadata_of(directory, text).at("tokenizer.ggml.pre"), "gpt-2");
  expect_refused("gpt2", {"add_prefix_space", "cannot be exported"});
}

TEST(GgufVocabulary, RefusesTokenizersThatLlamaCppLacksByName) {
  expect_refused("affixed", {"neither a byte-level BPE", "SentencePiece"});
  expect_refused("folded", {"neither a byte-level BPE"}, [](json& file) { file["model"]["byte_fallback"] = nullptr; });
  expect_refused("bytes_first", {"neither a byte-level BPE"});
  expect_refused("llm_jp", {"is a Unigram tokenizer"});
  expect_refused("qwen", {"NFKC"}, [](json& file) { file["normalizer"]["type"] = "NFKC"; });
  expect_refused("llama3", {"a pattern that llama.cpp has no name for"}, [](json& file) {
    file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\p{L}+|[^\\p{L}]+";
  });
  expect_refused("qwen", {"Punctuation"}, [](json& file) {
    file["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Punctuation"}, {"behavior", "Isolated"}};
  });
}

TEST(GgufVocabulary, MindsWhetherMergesAreIgnored) {
  // Qwen's pattern with "ignore_merges": llama.cpp's tokenizer for this pattern always applies merges.
  const TemporaryDirectory directory;
  const auto ignoring = [](json& file) { file["model"]["ignore_merges"] = true; };
  EXPECT_EQ(metadata_of(directory, text_of(directory, "qwen", ignoring)).at("tokenizer.ggml.pre"), "qwen2");
  expect_refused("qwen", {"ignore_merges", "tokens that its merges do not make"}, [&](json& file) {
    ignoring(file);
    file["model"]["merges"].erase(file["model"]["merges"].size() - 1);
  });
}

TEST(GgufVocabulary, ScoresOrderPiecesAsTheMergesDo) {
  const TemporaryDirectory directory;
  const ModelText text = text_of(directory, "llama2", list_all_merges, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  const json told = metadata_of(directory, text);
  EXPECT_EQ(told.at("tokenizer.ggml.model"), "llama");
  EXPECT_EQ(told.at("tokenizer.ggml.pre"), "default");
  EXPECT_EQ(told.at("tokenizer.ggml.add_space_prefix"), true);
  EXPECT_FALSE(told.contains("tokenizer.ggml.merges"));
  const auto id = [&](const std::string& token) { return static_cast<size_t>(text.tokenizer.id_of(token)); };
  double last = 1;
  const json file = json::parse(read_bytes(directory / "tokenizer.json"));
  for (const json& merge : file.at("model").at("merges")) {
    const double score = told.at("tokenizer.ggml.scores")[id(made_by(merge))];
    EXPECT_LE(score, last);
    last = score;
  }
  EXPECT_LT(last, -100);
  EXPECT_EQ(told.at("tokenizer.ggml.token_type")[id("<unk>")], 2);
  EXPECT_EQ(told.at("tokenizer.ggml.token_type")[id("<s>")], 3);
  EXPECT_EQ(told.at("tokenizer.ggml.token_type")[id("<0x0A>")], 6);
  EXPECT_EQ(told.at("tokenizer.ggml.bos_token_id"), id("<s>"));
  EXPECT_EQ(told.at("tokenizer.ggml.eos_token_id"), id("</s>"));
  EXPECT_EQ(told.at("tokenizer.ggml.unknown_token_id"), text.tokenizer.id_of("<unk>"));
}

TEST(GgufVocabulary, SaysWhetherASpaceStandsBeforeAText) {
  const TemporaryDirectory directory;
  EXPECT_EQ(
      metadata_of(directory, text_of(directory, "mistral", space_as("first"))).at("tokenizer.ggml.add_space_prefix"),
      true);
  EXPECT_EQ(
      metadata_of(directory, text_of(directory, "mistral", space_as("never"))).at("tokenizer.ggml.add_space_prefix"),
      false);
  const auto as_gemma = [](json& file) {
    list_all_merges(file);
    file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
    file["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}, {"invert", false}};
    file["added_tokens"].push_back(added_token(800, "▁▁▁▁▁▁▁▁▁▁▁▁", {{"special", false}}));
  };
  const ModelText gemma = text_of(directory, "mistral", as_gemma);
  const json told = metadata_of(directory, gemma);
  EXPECT_EQ(told.at("tokenizer.ggml.add_space_prefix"), false);
  EXPECT_EQ(told.at("tokenizer.ggml.tokens").back(), std::string(12, ' '));
  EXPECT_EQ(told.at("tokenizer.ggml.token_type").back(), 4);
}

TEST(GgufVocabulary, RefusesPiecesWhoseMergesNoScoresGive) {
  // HF's trainer lists one way to make a token; SentencePiece's tokenizer joins any two tokens that make one.
  expect_refused("llama2", {"two other tokens joined", "cannot be exported"});
  expect_refused("llama2", {"between merges of other tokens"}, [](json& file) {
    list_all_merges(file);
    json& merges = file["model"]["merges"];
    const auto several = std::adjacent_find(merges.begin(), merges.end(),
                                            [](const json& a, const json& b) { return made_by(a) == made_by(b); });
    ASSERT_NE(several, merges.end());
    const json moved = *several;
    merges.erase(several);
    merges.push_back(moved);
  });
  expect_refused("llama2", {"<0x41>", "all 256"}, [](json& file) {
    list_all_merges(file);
    file["model"]["vocab"]["<other>"] = file["model"]["vocab"]["<0x41>"];
    file["model"]["vocab"].erase("<0x41>");
  });
  expect_refused("mistral", {"keeps words apart"}, [](json& file) {
    space_as("always")(file);
    file["pre_tokenizer"]["split"] = true;
    file["model"]["vocab"]["a▁"] = 800;
    file["model"]["merges"].push_back({"a", "▁"});
  });
  expect_refused("mistral", {"normalizer of type", "Lowercase"}, [](json& file) {
    space_as("never")(file);
    file["normalizer"] = {{"type", "Lowercase"}};
  });
}

TEST(GgufVocabulary, FillsIdsThatTheTokenizerLacksAndLeavesOutThoseAboveTheModel) {
  const TemporaryDirectory directory;
  const ModelText text = text_of(directory, "qwen");
  const int64_t own = text.tokenizer.vocab_size();
  const json more = metadata_of(directory, text, own + 3), fewer = metadata_of(directory, text, own - 200);
  EXPECT_EQ(more.at("tokenizer.ggml.tokens").back(), "[PAD" + std::to_string(own + 2) + "]");
  EXPECT_EQ(more.at("tokenizer.ggml.token_type").back(), 5);
  EXPECT_EQ(std::ssize(fewer.at("tokenizer.ggml.tokens")), own - 200);
}

TEST(GgufVocabulary, SaysWhatStandsAroundATextAndWhatEndsAnAnswer) {
  const TemporaryDirectory directory;
  const json config = {{"bos_token", "<|begin_of_text|>"},
                       {"eos_token", {{"content", "<|end_of_text|>"}}},
                       {"chat_template", "{% for m in messages %}{{ m.content }}<|eot_id|>{% endfor %}"}};
  const auto with_bos = [](json& file) {
    int64_t next = 2000;
    for (const char* token : {"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"})
      add_missing(file, added_token(next++, token));
  };
  const ModelText text = text_of(directory, "llama3", with_bos, config);
  const json told = metadata_of(directory, text);
  const bool begins = text.tokenizer.encode("a", true).size() > text.tokenizer.encode("a", false).size();
  EXPECT_EQ(told.at("tokenizer.ggml.add_bos_token"), begins);
  EXPECT_EQ(told.at("tokenizer.ggml.add_eos_token"), false);
  EXPECT_EQ(told.at("tokenizer.ggml.eos_token_id"), text.tokenizer.id_of("<|end_of_text|>"));
  EXPECT_EQ(told.at("tokenizer.ggml.eot_token_id"), text.tokenizer.id_of("<|eot_id|>"));
  EXPECT_EQ(told.at("tokenizer.chat_template"), config.at("chat_template"));
  EXPECT_FALSE(told.contains("tokenizer.chat_templates"));
}

TEST(GgufVocabulary, HoldsNamedTemplatesBesideTheDefaultOne) {
  const TemporaryDirectory directory;
  const ModelText text = text_of(directory, "qwen", {},
                                 {{"chat_template",
                                   {{{"name", "default"}, {"template", "{{ messages[0].content }}"}},
                                    {{"name", "tool_use"}, {"template", "tools"}}}}});
  const json told = metadata_of(directory, text);
  EXPECT_EQ(told.at("tokenizer.chat_template"), "{{ messages[0].content }}");
  EXPECT_EQ(told.at("tokenizer.chat_template.tool_use"), "tools");
  EXPECT_EQ(told.at("tokenizer.chat_templates"), (json{"tool_use"}));
}

TEST(GgufVocabulary, NamesModelsSoThatLlamaCppStripsSpacesAsTheTokenizerDoes) {
  const TemporaryDirectory directory;
  const ModelText plain = text_of(directory, "llama2");
  EXPECT_EQ(name_for_llama("my run", plain), "my run");
  EXPECT_EQ(name_for_llama("Phi-3-mini", plain), "Ph_-3-mini");
  const ModelText phi = text_of(directory, "llama2", [](json& file) {
    for (json& token : file["added_tokens"]) token["rstrip"] = token["content"] == "</s>";
    int64_t next = 800;
    for (const std::string name : {"<unk>", "<s>", "</s>", "<|endoftext|>", "<|assistant|>"})
      add_missing(file, added_token(next++, name, {{"rstrip", name == "<|assistant|>"}}));
  });
  EXPECT_EQ(name_for_llama("my run", phi), "my run (phi-3)");
  EXPECT_EQ(name_for_llama("phi3-mini", phi), "phi3-mini");
}

}  // namespace megatrain
