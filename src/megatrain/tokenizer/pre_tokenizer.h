// The pre-tokenizer of a tokenizer.json: splits a text into the words that the model encodes one by one.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "megatrain/tokenizer/normalizer.h"
#include "megatrain/tokenizer/tokenizer_json.h"
#include "megatrain/unicode/aligned_text.h"
#include "megatrain/unicode/unicode.h"

namespace megatrain {

// A piece of text, or a token already found in it.
struct TextPiece {
  std::string_view text;
  const ByteRange* origins = nullptr;  // one per byte; null: the text is the input itself, from `origin` on
  uint32_t origin = 0;                 // where it starts in the input; exact only if origins are tracked
  int32_t token = -1;

  TextPiece part(size_t begin, size_t end) const {
    const ByteRange* const from = origins == nullptr ? nullptr : origins + begin;
    return {text.substr(begin, end - begin), from,
            from == nullptr ? origin + static_cast<uint32_t>(begin) : from->begin, -1};
  }
  // Where bytes [begin, end) came from: whole characters of the input.
  ByteRange origin_of(size_t begin, size_t end) const;
};

// Owns the texts that pieces point into.
class TextPool {
 public:
  const AlignedText& keep(AlignedText text) { return texts_.emplace_back(std::move(text)); }
  void clear() { texts_.clear(); }

 private:
  std::deque<AlignedText> texts_;
};

// A piece that covers a whole kept text; `origin` is that of the piece it was made from.
TextPiece whole_piece(const AlignedText& text, uint32_t origin);

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(const TokenizerNode& node);

  // Whether the last step writes words in byte characters; the model may then take the bytes instead.
  bool ends_in_bytes() const { return ends_in_bytes_; }
  // For a model that takes no bytes: the last step writes byte characters after all.
  void end_in_characters();
  // Whether a step needs to know where in the input a piece started.
  bool needs_origins() const { return needs_origins_; }

  // Splits every piece that is not a token. With ends_in_bytes() the words are left as bytes. `spare` is scratch
  // memory.
  void cut(std::vector<TextPiece>& pieces, std::vector<TextPiece>& spare, TextPool& pool, bool track) const;

 private:
  enum class Prepend { always, first, never };
  struct ByteLevel {
    bool add_prefix_space = true;
    bool use_regex = true;
    bool map = true;  // to byte characters
  };
  struct Metaspace {
    std::string replacement;
    Prepend prepend = Prepend::always;
    bool split = true;
  };
  struct Split {
    TextPattern pattern;
    SplitBehavior behavior;
    bool invert;
  };
  struct SplitOnSet {  // each code point of the set is a match
    CodePointMap<uint8_t> set;
    SplitBehavior behavior;
  };
  struct Words {};  // Whitespace: \w+|[^\w\s]+
  using Step = std::variant<ByteLevel, Metaspace, Split, SplitOnSet, Words>;

  static Step read_step(const TokenizerNode& node);
  static void apply(const Step& step, TextPiece piece, TextPool& pool, bool track, std::vector<TextPiece>& out);
  static void apply_byte_level(const ByteLevel& step, TextPiece piece, TextPool& pool, bool track,
                               std::vector<TextPiece>& out);
  static void apply_metaspace(const Metaspace& step, const TextPiece& piece, TextPool& pool, bool track,
                              std::vector<TextPiece>& out);

  std::vector<Step> steps_;
  bool ends_in_bytes_ = false;
  bool needs_origins_ = false;
};

}  // namespace megatrain
