#include "megatrain/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "megatrain/unicode/tables.h"

namespace megatrain {
namespace {

constexpr size_t kMaxTokenBytes = 4096;  // bounds the search: every byte may look like a token's beginning

const CodePointSet& spaces() {
  static const auto made = CodePointSet::of(tokenizer_unicode::kRustSpace, tokenizer_unicode::kRustSpace_size);
  return made;
}

const CodePointSet& word_characters() {
  static const auto made = CodePointSet::of(tokenizer_unicode::kRustWord, tokenizer_unicode::kRustWord_size);
  return made;
}

uint32_t code_before(std::string_view text, size_t& end) {
  do end--;
  while (!is_utf8_boundary(text[end]));
  const char* at = text.data() + end;
  return next_code(at);
}

bool word_before(std::string_view text, size_t end) {
  return end > 0 && word_characters().contains(code_before(text, end));
}

bool word_after(std::string_view text, size_t begin) {
  if (begin >= text.size()) return false;
  const char* at = text.data() + begin;
  return word_characters().contains(next_code(at));
}

size_t skip_spaces_left(std::string_view text, size_t end) {
  while (end > 0) {
    size_t begin = end;
    if (!spaces().contains(code_before(text, begin))) break;
    end = begin;
  }
  return end;
}

size_t skip_spaces_right(std::string_view text, size_t begin) {
  const char* const last = text.data() + text.size();
  const char* at = text.data() + begin;
  while (at < last) {
    const char* after = at;
    if (!spaces().contains(next_code(after))) break;
    at = after;
  }
  return static_cast<size_t>(at - text.data());
}

}  // namespace

int32_t TextFinder::child(int32_t node, char byte) const {
  const auto& next = nodes_[static_cast<size_t>(node)].next;
  const auto found = std::lower_bound(next.begin(), next.end(), byte,
                                      [](const auto& entry, char value) { return entry.first < value; });
  return found != next.end() && found->first == byte ? found->second : -1;
}

bool TextFinder::add(std::string_view text, int32_t value) {
  int32_t node = 0;
  for (const char byte : text) {
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
      auto& siblings = nodes_[static_cast<size_t>(node)].next;
      siblings.insert(std::upper_bound(siblings.begin(), siblings.end(), std::pair(byte, next)), {byte, next});
    }
    node = next;
  }
  if (text.empty() || nodes_[static_cast<size_t>(node)].value >= 0) return false;
  nodes_[static_cast<size_t>(node)].value = value;
  starts_[static_cast<unsigned char>(text[0])] = true;
  return true;
}

bool TextFinder::find(std::string_view text, size_t from, ByteRange& range, int32_t& value) const {
  for (size_t begin = from; begin < text.size(); begin++) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    bool found = false;
    int32_t node = 0;
    for (size_t at = begin; at < text.size(); at++) {
      node = child(node, text[at]);
      if (node < 0) break;
      if (nodes_[static_cast<size_t>(node)].value >= 0) {
        found = true;
        value = nodes_[static_cast<size_t>(node)].value;
        range = {static_cast<uint32_t>(begin), static_cast<uint32_t>(at + 1)};
      }
    }
    if (found) return true;
  }
  return false;
}

AddedTokens::AddedTokens(const TokenizerNode& list, const std::vector<ConfigToken>& more, const Vocabulary& model,
                         const Normalizer& normalizer)
    : next_id_(static_cast<int32_t>(model.entries())) {
  for (const TokenizerNode& node : list.items()) {
    node.whole("id");
    if (const size_t bytes = node.text("content").size(); bytes > kMaxTokenBytes) {
      node.refuse(fmt::format("has {} bytes; a token may have at most {}", bytes, kMaxTokenBytes));
    }
    add({.content = node.text("content"),
         .single_word = node.boolean("single_word"),
         .left_strip = node.boolean("lstrip"),
         .right_strip = node.boolean("rstrip"),
         .normalized = node.boolean("normalized"),
         .special = node.boolean("special")},
        model, normalizer);
  }
  const std::unordered_map<int32_t, AddedToken> of_file = by_id_;
  for (const ConfigToken& each : more) {
    using Priority = ConfigToken::Priority;
    if (each.token.content.empty()) continue;
    if (each.token.content.size() > kMaxTokenBytes) {
      list.refuse(fmt::format("gets a token of {} bytes from tokenizer_config.json; a token may have at most {}",
                              each.token.content.size(), kMaxTokenBytes));
    }
    const bool if_new = each.priority == Priority::if_not_added || each.priority == Priority::if_known;
    if (if_new && ids_.contains(each.token.content)) continue;
    if (each.priority == Priority::if_known && model.id_of(each.token.content) < 0) continue;
    if (each.priority == Priority::if_id_is_free && of_file.contains(each.token.id)) continue;
    add(each.token, model, normalizer);
    const AddedToken& added = *find(each.token.content);
    const auto before = of_file.find(added.id);
    if (before == of_file.end() || before->second != added) beyond_file_.push_back(added);
  }
  for (const auto& [id, token] : by_id_) {
    if (!(token.normalized ? after_ : before_).add(token.written, id)) {
      list.refuse(fmt::format("has the token {} twice, or the normalizer leaves nothing of it",
                              nlohmann::json(token.content).dump()));
    }
  }
}

// A token replaces an existing one with the same text and keeps its id.
void AddedTokens::add(AddedToken token, const Vocabulary& model, const Normalizer& normalizer) {
  if (token.content.empty()) return;
  if (const auto known = ids_.find(token.content); known != ids_.end()) {
    token.id = known->second;
  } else if (const int32_t id = model.id_of(token.content); id >= 0) {
    token.id = id;
  } else {
    token.id = next_id_++;
  }
  token.written = token.content;
  if (token.normalized) {
    if (std::optional<AlignedText> text = normalizer.normalize(token.content, 0, false))
      token.written = std::move(text->text);
  }
  ids_[token.content] = token.id;
  if (token.special) special_[token.content] = true;
  by_id_[token.id] = std::move(token);
}

void AddedTokens::cut(const TextPiece& piece, bool after_normalizing, std::vector<TextPiece>& out) const {
  const TextFinder& finder = after_normalizing ? after_ : before_;
  const std::string_view text = piece.text;
  if (text.empty()) return;
  size_t done = 0, from = 0;
  ByteRange range;
  int32_t id = 0;
  while (!finder.empty() && finder.find(text, from, range, id)) {
    from = range.end;
    const AddedToken& token = by_id_.at(id);
    size_t begin = range.begin, end = range.end;
    if (token.single_word && (word_before(text, begin) || word_after(text, end))) continue;
    // Spaces that the previous token has taken stay with it.
    if (token.left_strip) begin = std::max(skip_spaces_left(text, begin), done);
    if (token.right_strip) end = skip_spaces_right(text, end);
    if (done < begin) out.push_back(piece.part(done, begin));
    out.push_back(piece.part(begin, end));
    out.back().token = id;
    done = end;
  }
  if (done != text.size()) out.push_back(piece.part(done, text.size()));
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? nullptr : find(found->second);
}

}  // namespace megatrain
