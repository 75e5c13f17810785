#include "megatrain/tokenizer/unigram.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/utf8.h"

namespace megatrain {
namespace {

constexpr size_t kMaxPieceBytes = 4096;  // bounds the search at each character of a word
constexpr double kUnknownPenalty = 10;   // below the lowest score

}  // namespace

bool is_unigram(const TokenizerNode& model) {
  if (model.has("type")) return model.type() == "Unigram";
  return model.has("vocab") && model.at("vocab").json().is_array();
}

Unigram::Unigram(const TokenizerNode& model) {
  for (const char* const key : {"alpha", "nbest_size"}) {
    if (model.has(key)) model.unsupported(fmt::format("\"{}\", which samples tokens", key));
  }
  byte_fallback_ = model.boolean_or("byte_fallback", false);
  read_vocabulary(model.at("vocab"));
  if (model.has("unk_id")) {
    const int64_t unknown = model.whole("unk_id");
    if (unknown >= vocabulary_.entries()) {
      model.at("unk_id").refuse(fmt::format("is {}, but the vocabulary has {} tokens", unknown, vocabulary_.entries()));
    }
    unknown_ = static_cast<int32_t>(unknown);
  }
  for (unsigned byte = 0; byte < 256; byte++) byte_ids_[byte] = vocabulary_.id_of(fmt::format("<0x{:02X}>", byte));
}

void Unigram::read_vocabulary(const TokenizerNode& node) {
  const nlohmann::json& list = node.json();
  if (!list.is_array()) node.refuse("is not an array of tokens and scores");
  constexpr size_t kMaxTokens = 1 << 24;
  if (list.size() > kMaxTokens) node.refuse(fmt::format("has {} tokens, expected at most {}", list.size(), kMaxTokens));
  vocabulary_.reserve(list.size());
  scores_.resize(list.size());
  double lowest = std::numeric_limits<double>::infinity();
  // From the last to the first, so that the last of equal tokens is the one that is found.
  for (size_t id = list.size(); id-- > 0;) {
    const nlohmann::json& entry = list[id];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      node.refuse(fmt::format("has an entry at {} that is not a token and its score", id));
    }
    const auto& token = entry[0].get_ref<const std::string&>();
    if (token.size() > kMaxPieceBytes) {
      node.refuse(
          fmt::format("has a token of {} bytes at {}; a token may have at most {}", token.size(), id, kMaxPieceBytes));
    }
    scores_[id] = entry[1].get<double>();
    lowest = std::min(lowest, scores_[id]);
    vocabulary_.add(token, static_cast<int32_t>(id));
  }
  unknown_score_ = lowest - kUnknownPenalty;
  std::vector<PieceTrie::Entry> entries;
  for (int32_t id = 0; id <= vocabulary_.last_id(); id++) {
    const std::string& token = *vocabulary_.token_of(id);
    if (!token.empty() && vocabulary_.id_of(token) == id) entries.push_back({token, id});
  }
  trie_ = PieceTrie(std::move(entries));
}

// Writes tokens from left to right; unknown ones wait for the next known one.
class Unigram::Writer {
 public:
  Writer(const Unigram& model, std::string_view word, std::vector<ModelToken>& tokens)
      : model_(model), word_(word), tokens_(tokens) {}

  void add(int32_t id, size_t begin, size_t end) {
    if (id == model_.unknown_) {
      if (unknown_begin_ == unknown_end_) unknown_begin_ = begin;
      unknown_end_ = end;
      return;
    }
    finish();
    push(id, begin, end);
  }

  // Unknown characters that are a token together become that token; it may be the unknown one itself.
  void finish() {
    if (unknown_begin_ == unknown_end_) return;
    const size_t begin = std::exchange(unknown_begin_, unknown_end_);
    const std::string_view text = word_.substr(begin, unknown_end_ - begin);
    if (const int32_t id = model_.vocabulary_.id_of(text); id >= 0) {
      push(id, begin, unknown_end_);
    } else if (model_.byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char c) { return id_of(c) >= 0; })) {
      for (size_t i = 0; i < text.size(); i++) push(id_of(text[i]), begin + i, begin + i + 1);
    } else {
      push(model_.unknown_, begin, unknown_end_);
    }
  }

 private:
  int32_t id_of(char byte) const { return model_.byte_ids_[static_cast<unsigned char>(byte)]; }
  void push(int32_t id, size_t begin, size_t end) {
    tokens_.push_back({id, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }

  const Unigram& model_;
  std::string_view word_;
  std::vector<ModelToken>& tokens_;
  size_t unknown_begin_ = 0, unknown_end_ = 0;
};

// The best way to each byte of a word. Only the part since the last byte that every way passes is kept. Sums of scores
// run on from the word's beginning, because their rounding decides between nearly equal ways.
class Unigram::Lattice {
 public:
  void start() {
    begin_ = 0;
    ways_.assign(1, {});
  }
  size_t begin() const { return begin_; }
  size_t furthest() const { return begin_ + ways_.size() - 1; }
  double score(size_t at) const { return ways_[at - begin_].score; }

  // Offers a token from `at` to `to`; of equal ways the first one offered stays. True if it is now the best.
  bool offer(size_t at, size_t to, double score) {
    if (to > furthest()) ways_.resize(to - begin_ + 1);
    Way& way = ways_[to - begin_];
    if (way.bytes > 0 && !(score > way.score)) return false;
    way.score = score;
    way.bytes = static_cast<uint32_t>(to - at);
    return true;
  }
  void choose(size_t to, int32_t id) { ways_[to - begin_].id = id; }

  // Writes the tokens up to `end`, which every way passes, and goes on from there.
  void flush(size_t end, Writer& writer) {
    path_.clear();
    for (size_t at = end; at > begin_; at -= ways_[at - begin_].bytes) path_.push_back(at);
    for (size_t i = path_.size(); i-- > 0;) {
      const Way& way = ways_[path_[i] - begin_];
      writer.add(way.id, path_[i] - way.bytes, path_[i]);
    }
    const double score = ways_[end - begin_].score;
    ways_.assign(1, {.score = score});
    begin_ = end;
  }

 private:
  struct Way {
    double score = 0;
    uint32_t bytes = 0;  // of its last token; 0: none leads here
    int32_t id = -1;
  };
  size_t begin_ = 0;
  std::vector<Way> ways_;     // to byte `begin_` + i
  std::vector<size_t> path_;  // scratch: ends of tokens, the last first
};

void Unigram::encode(std::string_view word, std::vector<ModelToken>& tokens) const {
  thread_local Lattice lattice;
  lattice.start();
  Writer writer(*this, word, tokens);
  for (size_t at = 0; at < word.size();) {
    if (at > lattice.begin() && at == lattice.furthest()) lattice.flush(at, writer);
    const double score = lattice.score(at);
    const size_t next = at + utf8_length(word[at]);
    bool known = false;
    trie_.each_prefix(word.substr(at), [&](size_t bytes, int32_t id) {
      known |= at + bytes == next;
      if (lattice.offer(at, at + bytes, score + scores_[static_cast<size_t>(id)])) lattice.choose(at + bytes, id);
    });
    if (!known && lattice.offer(at, next, score + unknown_score_)) {
      if (unknown_ < 0) {
        fail_input(
            fmt::format("A text has the character {}, which the Unigram vocabulary lacks, and the model has no "
                        "unk_id; add the character or an unk_id to tokenizer.json.",
                        nlohmann::json(word.substr(at, next - at)).dump()));
      }
      lattice.choose(next, unknown_);
    }
    at = next;
  }
  if (lattice.furthest() > lattice.begin()) lattice.flush(word.size(), writer);
  writer.finish();
}

}  // namespace megatrain
