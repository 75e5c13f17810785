#include "megatrain/tokenizer/bpe.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/unicode/bytes.h"

namespace megatrain {
namespace {

constexpr size_t kFewSymbols = 48;  // up to here the next merge is searched for, beyond it a queue is used

// Short words and their tokens. A new word replaces the one in its slot.
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 40;
  static constexpr size_t kMaxTokens = 12;

  struct Entry {
    uint64_t owner = 0;  // 0: empty
    uint64_t hash = 0;
    uint8_t size = 0;
    uint8_t count = 0;
    std::array<uint8_t, kMaxTokens> ends{};
    std::array<char, kMaxBytes> word{};
    std::array<int32_t, kMaxTokens> ids{};
  };

  Entry& slot(uint64_t hash) { return entries_[hash >> 32 & (entries_.size() - 1)]; }

 private:
  std::vector<Entry> entries_ = std::vector<Entry>(1 << 15);  // 4.3 MB per thread
};

WordCache& this_threads_cache() {
  thread_local WordCache cache;
  return cache;
}

}  // namespace

// A token of the word so far, in a linked list; `pair` is its merge with the next one.
struct Bpe::Symbol {
  int32_t id = 0;
  int32_t previous = -1;
  int32_t next = -1;
  uint32_t begin = 0;
  uint32_t end = 0;
  Merge pair;
  bool dead = false;
};

struct Bpe::Scratch {
  std::vector<Symbol> symbols;
  std::vector<uint64_t> queue;
};

Bpe::Bpe(const TokenizerNode& model, bool words_are_bytes) : words_are_bytes_(words_are_bytes) {
  static std::atomic<uint64_t> made{0};
  number_ = ++made;
  if (model.has("type") && model.type() != "BPE")
    model.unsupported(fmt::format("a model of type \"{}\"", model.type()));
  if (model.has("dropout") && model.at("dropout").json() != 0.0) {
    model.unsupported("a \"dropout\", which tokenizes the same text differently each time");
  }
  prefix_ = model.text_or("continuing_subword_prefix", "");
  suffix_ = model.text_or("end_of_word_suffix", "");
  fuse_unknown_ = model.boolean_or("fuse_unk", false);
  byte_fallback_ = model.boolean_or("byte_fallback", false);
  ignore_merges_ = model.boolean_or("ignore_merges", false);
  if (words_are_bytes_ && (!prefix_.empty() || !suffix_.empty())) {
    model.unsupported("a \"continuing_subword_prefix\" or \"end_of_word_suffix\" beside a ByteLevel pre-tokenizer");
  }
  read_vocabulary(model.at("vocab"));
  if (model.has("unk_token")) {
    unknown_ = vocabulary_.id_of(model.text("unk_token"));
    if (unknown_ < 0) unknown_missing_ = model.text("unk_token");
  }
  read_merges(model.at("merges"));
  prepare_characters();
}

void Bpe::read_vocabulary(const TokenizerNode& node) {
  if (!node.json().is_object()) node.refuse("is not an object of tokens and ids");
  constexpr uint64_t kMaxId = 1 << 24;
  vocabulary_.reserve(node.json().size());
  words_.reserve(node.json().size());
  std::string bytes;
  for (const auto& [token, value] : node.json().items()) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kMaxId) {
      node.refuse(fmt::format("gives the token {} an id that is not a whole number up to {}",
                              nlohmann::json(token).dump(), kMaxId));
    }
    const auto id = value.get<int32_t>();
    if (const std::string* const other = vocabulary_.token_of(id)) {
      node.refuse(fmt::format("gives the id {} to two tokens, {} and {}", id, nlohmann::json(*other).dump(),
                              nlohmann::json(token).dump()));
    }
    vocabulary_.add(token, id);
    if (!words_are_bytes_) {
      words_.insert(token, id);
    } else if (to_bytes(token, bytes)) {
      words_.insert(bytes, id);
    }
  }
}

void Bpe::read_merges(const TokenizerNode& node) {
  const nlohmann::json& merges = node.json();
  if (!merges.is_array()) node.refuse("is not an array");
  merges_.reserve(merges.size());
  std::string joined;
  const std::string mark = "\xE2\x96\x81";  // ▁
  bool separable = !words_are_bytes_ && prefix_.empty() && suffix_.empty() && vocabulary_.id_of(mark) >= 0;
  uint32_t rank = 0;
  for (size_t i = 0; i < merges.size(); i++) {
    const nlohmann::json& merge = merges[i];
    std::string_view left, right;
    if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        node.refuse(
            fmt::format("has the entry {} at {}, which is not two tokens with a space between them", merge.dump(), i));
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else {
      node.refuse(fmt::format("has an entry at {} that is not a pair of tokens", i));
    }
    if (right.size() < prefix_.size())
      node.refuse(fmt::format("has an entry at {} that is shorter than the prefix", i));
    joined.assign(left);
    joined += right.substr(prefix_.size());
    const int32_t ids[] = {vocabulary_.id_of(left), vocabulary_.id_of(right), vocabulary_.id_of(joined)};
    for (int part = 0; part < 3; part++) {
      if (ids[part] >= 0) continue;
      const std::string token = part == 0 ? std::string(left) : part == 1 ? std::string(right) : joined;
      node.refuse(fmt::format("has an entry at {} with the token {}, which the vocabulary lacks", i,
                              nlohmann::json(token).dump()));
    }
    merges_.insert(ids[0], ids[1], {rank++, ids[2]});
    // A mark after another character, in one of the two parts or where they meet.
    for (size_t at = joined.find(mark); separable && at != std::string::npos;
         at = joined.find(mark, at + mark.size())) {
      separable = at == 0 || joined.compare(at - std::min(at, mark.size()), mark.size(), mark) == 0;
    }
  }
  if (separable) word_start_ = mark;
}

void Bpe::prepare_characters() {
  for (unsigned byte = 0; byte < 256; byte++) {
    const char one = static_cast<char>(byte);
    byte_ids_[byte] = words_are_bytes_ ? words_.find(std::string_view(&one, 1)) : -1;
    fallback_ids_[byte] = vocabulary_.id_of(fmt::format("<0x{:02X}>", byte));
  }
  if (words_are_bytes_) return;
  std::vector<CodePointMap<int32_t>::Entry> entries;
  for (int32_t id = 0; id <= vocabulary_.last_id(); id++) {
    const std::string* const token = vocabulary_.token_of(id);
    if (token == nullptr || token->empty() || utf8_length((*token)[0]) != token->size()) continue;
    const char* at = token->data();
    const uint32_t code = next_code(at);
    entries.push_back({{code, code}, id});
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.range.first < b.range.first; });
  character_ids_ = CodePointMap<int32_t>(-1, entries);
}

void Bpe::encode(std::string_view word, std::vector<ModelToken>& tokens) const {
  if (word.empty()) return;
  if (ignore_merges_) {
    if (const int32_t id = words_.find(word); id >= 0) {
      tokens.push_back({id, 0, static_cast<uint32_t>(word.size())});
      return;
    }
  }
  if (word_start_.empty()) {
    encode_part(word, 0, tokens);
    return;
  }
  // No merge crosses the start of a word, so each word is encoded on its own.
  size_t begin = 0;
  while (begin < word.size()) {
    size_t at = begin;
    while (word.compare(at, word_start_.size(), word_start_) == 0) at += word_start_.size();
    const size_t end = std::min(word.find(word_start_, at), word.size());
    encode_part(word.substr(begin, end - begin), static_cast<uint32_t>(begin), tokens);
    begin = end;
  }
}

void Bpe::encode_part(std::string_view part, uint32_t shift, std::vector<ModelToken>& tokens) const {
  const size_t first = tokens.size();
  if (part.size() > WordCache::kMaxBytes) {
    encode_uncached(part, tokens);
  } else {
    const uint64_t hash = hash_bytes(part);
    WordCache::Entry& entry = this_threads_cache().slot(hash);
    if (entry.owner == number_ && entry.hash == hash && std::string_view(entry.word.data(), entry.size) == part) {
      uint32_t begin = shift;
      for (size_t i = 0; i < entry.count; i++) {
        const uint32_t end = shift + entry.ends[i];
        tokens.push_back({entry.ids[i], begin, end});
        begin = end;
      }
      return;
    }
    encode_uncached(part, tokens);
    const size_t count = tokens.size() - first;
    bool whole = count <= WordCache::kMaxTokens;  // and the tokens cover every byte
    for (size_t i = 0; whole && i < count; i++)
      whole = tokens[first + i].begin == (i == 0 ? 0 : tokens[first + i - 1].end);
    if (whole) {
      entry.owner = number_;
      entry.hash = hash;
      entry.size = static_cast<uint8_t>(part.size());
      entry.count = static_cast<uint8_t>(count);
      std::copy(part.begin(), part.end(), entry.word.begin());
      for (size_t i = 0; i < count; i++) {
        entry.ids[i] = tokens[first + i].id;
        entry.ends[i] = static_cast<uint8_t>(tokens[first + i].end);
      }
    }
  }
  for (size_t i = first; i < tokens.size(); i++) {
    tokens[i].begin += shift;
    tokens[i].end += shift;
  }
}

void Bpe::encode_uncached(std::string_view word, std::vector<ModelToken>& tokens) const {
  thread_local Scratch scratch;
  to_symbols(word, scratch.symbols);
  if (scratch.symbols.size() <= kFewSymbols) {
    merge_few(scratch.symbols);
  } else {
    merge_many(scratch.symbols, scratch.queue);
  }
  if (scratch.symbols.empty()) return;
  for (int32_t at = 0; at >= 0; at = scratch.symbols[static_cast<size_t>(at)].next) {
    const Symbol& symbol = scratch.symbols[static_cast<size_t>(at)];
    tokens.push_back({symbol.id, symbol.begin, symbol.end});
  }
}

void Bpe::to_symbols(std::string_view word, std::vector<Symbol>& symbols) const {
  symbols.clear();
  const auto push = [&](int32_t id, size_t begin, size_t end) {
    symbols.push_back({.id = id, .begin = static_cast<uint32_t>(begin), .end = static_cast<uint32_t>(end)});
  };
  // An unknown token is held back until the next character: another unknown one may be fused with it, and fallback
  // bytes go in front of it.
  bool waiting = false;
  size_t waiting_begin = 0, waiting_end = 0;
  const auto release = [&] {
    if (waiting) push(unknown_, waiting_begin, waiting_end);
    waiting = false;
  };
  std::string changed;
  for (size_t begin = 0, end = 0; begin < word.size(); begin = end) {
    const int32_t id = character_id(word, begin, end, changed);
    if (id >= 0) {
      release();
      push(id, begin, end);
      continue;
    }
    if (byte_fallback_ && push_bytes(changed, begin, end, symbols)) continue;
    if (unknown_ < 0) {
      if (!unknown_missing_) continue;
      fail_input(
          fmt::format("A text has a character that the vocabulary lacks, and it lacks the unk_token \"{}\" too; add "
                      "the token to the "
                      "vocabulary of tokenizer.json.",
                      *unknown_missing_));
    }
    if (!waiting || !fuse_unknown_) {
      release();
      waiting_begin = begin;
    }
    waiting = true;
    waiting_end = end;
  }
  release();
  for (size_t i = 0; i < symbols.size(); i++) {
    symbols[i].previous = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i + 1) : -1;
  }
  for (size_t i = 0; i + 1 < symbols.size(); i++) symbols[i].pair = merges_.find(symbols[i].id, symbols[i + 1].id);
}

// The token of the character that starts at `begin`, and the character's end. -1 if there is none; `written` is then
// how the vocabulary would spell the character.
int32_t Bpe::character_id(std::string_view word, size_t begin, size_t& end, std::string& written) const {
  if (words_are_bytes_) {
    end = begin + 1;
    const auto byte = static_cast<unsigned char>(word[begin]);
    if (byte_ids_[byte] < 0) {
      written.clear();
      append_utf8(written, kByteCharacters[byte]);
    }
    return byte_ids_[byte];
  }
  const char* at = word.data() + begin;
  const uint32_t code = next_code(at);
  end = static_cast<size_t>(at - word.data());
  const bool with_prefix = begin > 0 && !prefix_.empty();
  const bool with_suffix = end == word.size() && !suffix_.empty();
  if (!with_prefix && !with_suffix) {
    const int32_t id = character_ids_[code];
    if (id < 0) written = word.substr(begin, end - begin);
    return id;
  }
  written = with_prefix ? prefix_ : std::string();
  written += word.substr(begin, end - begin);
  if (with_suffix) written += suffix_;
  return words_.find(written);
}

// Pushes a token for each byte, if every byte has one.
bool Bpe::push_bytes(std::string_view character, size_t begin, size_t end, std::vector<Symbol>& symbols) const {
  const bool all = std::all_of(character.begin(), character.end(),
                               [&](char c) { return fallback_ids_[static_cast<unsigned char>(c)] >= 0; });
  if (!all) return false;
  for (size_t i = 0; i < character.size(); i++) {
    const auto first = static_cast<uint32_t>(std::min(begin + i, end - 1));
    symbols.push_back(
        {.id = fallback_ids_[static_cast<unsigned char>(character[i])], .begin = first, .end = first + 1});
  }
  return true;
}

void Bpe::refresh_pair(std::vector<Symbol>& symbols, int32_t left) const {
  Symbol& symbol = symbols[static_cast<size_t>(left)];
  symbol.pair = symbol.next < 0 ? Merge{} : merges_.find(symbol.id, symbols[static_cast<size_t>(symbol.next)].id);
}

// Merges the lowest rank first, the leftmost among equals.
void Bpe::merge_few(std::vector<Symbol>& symbols) const {
  if (symbols.empty()) return;
  for (;;) {
    int32_t best = -1;
    uint32_t rank = UINT32_MAX;
    for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].next) {
      if (symbols[static_cast<size_t>(at)].pair.rank < rank) {
        rank = symbols[static_cast<size_t>(at)].pair.rank;
        best = at;
      }
    }
    if (best < 0) return;
    Symbol& left = symbols[static_cast<size_t>(best)];
    const Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = left.pair.id;
    left.end = right.end;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best;
    refresh_pair(symbols, best);
    if (left.previous >= 0) refresh_pair(symbols, left.previous);
  }
}

// Merges in the same order, from a queue of (rank, place). Entries whose pair no longer exists are skipped. O(n log n).
void Bpe::merge_many(std::vector<Symbol>& symbols, std::vector<uint64_t>& queue) const {
  queue.clear();
  const auto push = [&](int32_t at) {
    const uint32_t rank = symbols[static_cast<size_t>(at)].pair.rank;
    if (rank == UINT32_MAX) return false;
    queue.push_back(uint64_t{rank} << 32 | static_cast<uint32_t>(at));
    return true;
  };
  for (size_t i = 0; i < symbols.size(); i++) push(static_cast<int32_t>(i));
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t top = queue.back();
    queue.pop_back();
    const auto at = static_cast<int32_t>(top & UINT32_MAX);
    Symbol& left = symbols[static_cast<size_t>(at)];
    if (left.dead || left.pair.rank != top >> 32) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = left.pair.id;
    left.end = right.end;
    left.next = right.next;
    right.dead = true;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = at;
    refresh_pair(symbols, at);
    if (push(at)) std::push_heap(queue.begin(), queue.end(), std::greater<>());
    if (left.previous >= 0) {
      refresh_pair(symbols, left.previous);
      if (push(left.previous)) std::push_heap(queue.begin(), queue.end(), std::greater<>());
    }
  }
}

}  // namespace megatrain
