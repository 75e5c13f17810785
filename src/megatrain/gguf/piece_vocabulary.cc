// SentencePiece BPE, whose merges are ordered by scores.
#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/gguf/vocabulary.h"
#include "megatrain/tokenizer/tokenizer_json.h"

namespace megatrain {
namespace {

using nlohmann::json;

constexpr const char* kPieceMark = "\xE2\x96\x81";  // ▁

[[noreturn]] void refuse_pieces(const TokenizerFile& file, const std::string& what) {
  fail_input(
      fmt::format("{} {}, which llama.cpp's tokenizer for SentencePiece does not; this tokenizer cannot be exported",
                  file.path, what));
}

// Whether it is a Replace of " " by the mark.
bool marks_spaces(const TokenizerNode& node) {
  return node.type() == "Replace" && node.at("pattern").has("String") && node.at("pattern").text("String") == " " &&
         node.text("content") == kPieceMark;
}

// Whether it is a Split at spaces, which has no effect once spaces are marks.
bool splits_spaces(const TokenizerNode& node) {
  return node.type() == "Split" && node.at("pattern").has("String") && node.at("pattern").text("String") == " ";
}

// The left and right token of a merge.
std::pair<std::string, std::string> parts_of(const json& merge) {
  if (merge.is_array()) return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const std::string& text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  return {text.substr(0, space), text.substr(space + 1)};
}

bool mark_inside(const std::string& token) { return token.find(kPieceMark, 1) != std::string::npos; }

}  // namespace

bool piece_space_prefix(const TokenizerFile& file) {
  const TokenizerNode root(file.json, file.path, "");
  bool prepends = false, marks = false;
  if (root.has("normalizer")) {
    for (const TokenizerNode& node : flatten_sequence(root.at("normalizer"), "normalizers")) {
      if (node.type() == "Prepend" && node.text("prepend") == kPieceMark && !prepends) {
        prepends = true;
      } else if (marks_spaces(node)) {
        marks = true;
      } else {
        refuse_pieces(file, fmt::format("changes text by a normalizer of type {}", printable(node.type())));
      }
    }
  }
  if (root.has("pre_tokenizer")) {
    for (const TokenizerNode& node : flatten_sequence(root.at("pre_tokenizer"), "pretokenizers")) {
      if (node.type() == "Metaspace" && !marks && node.text("replacement") == kPieceMark) {
        marks = true;
        prepends = node.text_or("prepend_scheme", "always") != "never";
        if (prepends)
          log_info(
              "llama.cpp puts a space before every text and after every special token; the model's tokenizer does not "
              "where a text begins with a space or follows a token, and gives other tokens there");
        const json& merges = file.json.at("model").at("merges");
        if (node.boolean_or("split", true) && std::any_of(merges.begin(), merges.end(), [](const json& merge) {
              const auto [left, right] = parts_of(merge);
              return mark_inside(left + right);
            }))
          refuse_pieces(file, "keeps words apart (Metaspace's split) that its merges would join");
      } else if (!(marks && splits_spaces(node))) {
        refuse_pieces(file, fmt::format("cuts text by a pre-tokenizer of type {}", printable(node.type())));
      }
    }
  }
  if (!marks) refuse_pieces(file, "does not write spaces as \u2581");
  return prepends;
}

std::vector<float> piece_scores(const TokenizerFile& file, const Tokenizer& tokenizer, int64_t vocab) {
  std::vector<float> scores(static_cast<size_t>(vocab), 0.0f);
  std::vector<int64_t> made(static_cast<size_t>(vocab), 0);  // number of merges that produce the token
  const json& merges = file.json.at("model").at("merges");
  int64_t rank = 0;
  int32_t last = -1;
  for (const json& merge : merges) {
    const auto [left, right] = parts_of(merge);
    const int32_t id = tokenizer.id_of(left + right);
    if (id < 0 || id >= vocab) continue;
    const auto at = static_cast<size_t>(id);
    if (made[at] > 0 && last != id)
      refuse_pieces(file,
                    fmt::format("has merges that make {} between merges of other tokens", printable(left + right)));
    if (made[at]++ == 0) scores[at] = -static_cast<float>(rank++);
    last = id;
  }
  // llama.cpp joins any two tokens whose concatenation is a token, listed as a merge or not.
  int64_t unlisted = 0;
  std::string example;
  const json& vocabulary = file.json.at("model").at("vocab");
  for (const auto& [token, number] : vocabulary.items()) {
    const int64_t id = number.get<int64_t>();
    if (id >= vocab || tokenizer.added().find(static_cast<int32_t>(id)) != nullptr) continue;
    int64_t ways = 0;
    for (size_t cut = 1; cut < token.size(); ++cut)
      ways += vocabulary.contains(token.substr(0, cut)) && vocabulary.contains(token.substr(cut)) ? 1 : 0;
    if (ways <= made[static_cast<size_t>(id)]) continue;
    if (unlisted++ == 0) example = token;
  }
  if (unlisted == 0) return scores;
  const std::string what =
      fmt::format("has {} tokens, such as {}, that are two other tokens joined, without a merge for it", unlisted,
                  printable(example));
  constexpr int64_t kFew = 100;  // refuse above one in this many tokens
  if (unlisted * kFew > std::ssize(vocabulary)) refuse_pieces(file, what);
  log_warn(fmt::format("{} {}; llama.cpp joins them, and gives other tokens there", file.path, what));
  return scores;
}

}  // namespace megatrain
