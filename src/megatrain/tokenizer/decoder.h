// The decoder of a tokenizer.json: tokens back to text.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "megatrain/tokenizer/normalizer.h"
#include "megatrain/tokenizer/tokenizer_json.h"

namespace megatrain {

class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(const TokenizerNode& node);

  std::string decode(std::vector<std::string> tokens) const;
  // The bytes that a token adds within a text, also those of a part of a character.
  std::string bytes_of(const std::string& token) const;

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Metaspace {
    std::string replacement;
    bool drop_first = true;  // marks of the first token are dropped, not turned into spaces
  };
  struct Strip {
    std::string content;  // one character
    int64_t start = 0, stop = 0;
  };
  struct Replace {
    TextPattern pattern;
    std::string content;
  };
  using Step = std::variant<ByteLevel, ByteFallback, Fuse, Metaspace, Strip, Replace>;

  static Step read_step(const TokenizerNode& node);
  static void apply(const Step& step, std::vector<std::string>& tokens);

  std::vector<Step> steps_;
  bool present_ = false;  // without a decoder, tokens are joined by spaces
};

}  // namespace megatrain
