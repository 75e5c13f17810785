#include "megatrain/tokenizer/decoder.h"

#include <cctype>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "megatrain/unicode/unicode.h"
#include "megatrain/unicode/bytes.h"

namespace megatrain {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

std::string joined(const std::vector<std::string>& tokens, std::string_view between) {
  std::string result;
  for (size_t i = 0; i < tokens.size(); i++) {
    if (i > 0) result += between;
    result += tokens[i];
  }
  return result;
}

void decode_bytes(std::vector<std::string>& tokens) {
  std::string all, bytes;
  for (const std::string& token : tokens) all += to_bytes(token, bytes) ? bytes : token;
  tokens = {utf8_lossy(all)};
}

// The byte of "<0x41>", or -1. A plus sign is accepted as the first digit, as in the library that writes these files.
int fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const std::string digits = token.substr(token[3] == '+' ? 4 : 3, token[3] == '+' ? 1 : 2);
  int value = 0;
  for (const char c : digits) {
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return -1;
    value = 16 * value + (std::isdigit(static_cast<unsigned char>(c)) != 0 ? c - '0' : std::tolower(c) - 'a' + 10);
  }
  return value;
}

void decode_fallback(std::vector<std::string>& tokens) {
  std::vector<std::string> result;
  std::string bytes;
  const auto release = [&] {
    if (bytes.empty()) return;
    if (find_invalid_utf8(bytes) == std::string::npos) {
      result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), std::string(kReplacementCharacter));
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const int byte = fallback_byte(token); byte >= 0) {
      bytes += static_cast<char>(byte);
    } else {
      release();
      result.push_back(std::move(token));
    }
  }
  release();
  tokens = std::move(result);
}

std::string replaced(const std::string& text, std::string_view from, std::string_view to) {
  std::string result;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, done)) {
    result.append(text, done, at - done);
    result += to;
    done = at + from.size();
  }
  result.append(text, done);
  return result;
}

}  // namespace

Decoder::Decoder(const TokenizerNode& node) : present_(true) {
  for (const TokenizerNode& step : flatten_sequence(node, "decoders")) steps_.push_back(read_step(step));
}

Decoder::Step Decoder::read_step(const TokenizerNode& node) {
  const std::string type = node.type();
  if (type == "ByteLevel") return ByteLevel{};
  if (type == "ByteFallback") return ByteFallback{};
  if (type == "Fuse") return Fuse{};
  if (type == "Metaspace") {
    Metaspace metaspace;
    append_utf8(metaspace.replacement, node.code("replacement"));
    metaspace.drop_first = node.text_or("prepend_scheme", "always") != "never";
    return metaspace;
  }
  if (type == "Strip") {
    Strip strip;
    append_utf8(strip.content, node.code("content"));
    strip.start = node.whole("start");
    strip.stop = node.whole("stop");
    return strip;
  }
  if (type == "Replace") {
    Replace replace{TextPattern(node.at("pattern")), node.text("content")};
    return replace;
  }
  node.unsupported(fmt::format("a decoder of type \"{}\"", type));
}

void Decoder::apply(const Step& step, std::vector<std::string>& tokens) {
  std::visit(
      [&](const auto& chosen) {
        using T = std::decay_t<decltype(chosen)>;
        if constexpr (std::is_same_v<T, ByteLevel>) {
          decode_bytes(tokens);
        } else if constexpr (std::is_same_v<T, ByteFallback>) {
          decode_fallback(tokens);
        } else if constexpr (std::is_same_v<T, Fuse>) {
          tokens = {joined(tokens, "")};
        } else if constexpr (std::is_same_v<T, Metaspace>) {
          for (size_t i = 0; i < tokens.size(); i++) {
            tokens[i] = replaced(tokens[i], chosen.replacement, i == 0 && chosen.drop_first ? "" : " ");
          }
        } else if constexpr (std::is_same_v<T, Strip>) {
          const size_t one = chosen.content.size();
          for (std::string& token : tokens) {
            size_t begin = 0, end = token.size();
            for (int64_t i = 0; i < chosen.start && token.compare(begin, one, chosen.content) == 0; i++) begin += one;
            for (int64_t i = 0;
                 i < chosen.stop && end >= begin + one && token.compare(end - one, one, chosen.content) == 0; i++)
              end -= one;
            token = token.substr(begin, end - begin);
          }
        } else {
          std::vector<ByteRange> matches;
          for (std::string& token : tokens) {
            if (token.empty()) continue;
            chosen.pattern.find_all(token, matches);
            if (!matches.empty()) token = replace_all(align_text(token, 0, false), matches, chosen.content).text;
          }
        }
      },
      step);
}

std::string Decoder::bytes_of(const std::string& token) const {
  std::vector<std::string> tokens = {"", token};  // second, as decoders treat the first token of a text differently
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) {
      std::string bytes;
      if (to_bytes(tokens[1], bytes)) tokens[1] = bytes;
    } else if (std::holds_alternative<ByteFallback>(step)) {
      if (const int byte = fallback_byte(tokens[1]); byte >= 0) return {static_cast<char>(byte)};
    } else if (!std::holds_alternative<Fuse>(step) && !std::holds_alternative<Strip>(step)) {
      apply(step, tokens);
    }
  }
  return tokens[1];
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) apply(step, tokens);
  return joined(tokens, present_ ? "" : " ");
}

}  // namespace megatrain
