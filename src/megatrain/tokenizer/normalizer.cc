#include "megatrain/tokenizer/normalizer.h"

#include <map>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/unicode/tables.h"
#include "megatrain/unicode/bytes.h"

namespace megatrain {
namespace {

// Limits the growth of a text. Unicode's forms and byte characters, and the usual uses of Replace and Prepend, grow it
// by less than 64 times. Without a limit a tokenizer.json could fill the memory with a few lines.
constexpr size_t kFreeBytes = 4096, kMostGrowth = 64;

const CodePointMap<uint16_t>& lowercase_index() {  // index + 1 in kLowercase; 0: unchanged
  static const CodePointMap<uint16_t> made = [] {
    using namespace tokenizer_unicode;
    std::vector<CodePointMap<uint16_t>::Entry> entries;
    for (int i = 0; i < kLowercase_size; i += 2 + static_cast<int>(kLowercase[i + 1])) {
      entries.push_back({{kLowercase[i], kLowercase[i]}, static_cast<uint16_t>(i + 1)});
    }
    return CodePointMap<uint16_t>(0, entries);
  }();
  return made;
}

const CodePointMap<uint8_t>& combining_marks() {
  static const auto made =
      membership(CodePointSet::of(tokenizer_unicode::kCombiningMark, tokenizer_unicode::kCombiningMark_size));
  return made;
}

const CodePointSet& stripped_spaces() {
  static const auto made = CodePointSet::of(tokenizer_unicode::kRustSpace, tokenizer_unicode::kRustSpace_size);
  return made;
}

// Calls visit(code point, its first byte, the byte after it).
template <typename Visit>
void for_each_code(std::string_view text, const Visit& visit) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    const char* const begin = at;
    const uint32_t code = next_code(at);
    visit(code, static_cast<size_t>(begin - text.data()), static_cast<size_t>(at - text.data()));
  }
}

AlignedText lowercase(const AlignedText& text) {
  AlignedText result;
  result.tracked = text.tracked;
  const CodePointMap<uint16_t>& index = lowercase_index();
  for_each_code(text.text, [&](uint32_t code, size_t begin, size_t) {
    if (const uint16_t entry = index[code]; entry != 0) {
      const uint32_t* const lower = tokenizer_unicode::kLowercase + entry - 1;
      for (uint32_t i = 0; i < lower[1]; i++) result.append_code(lower[2 + i], text.origin(begin));
    } else {
      result.append_code(code, text.origin(begin));
    }
  });
  return result;
}

AlignedText without_accents(const AlignedText& text) {
  AlignedText result;
  result.tracked = text.tracked;
  for_each_code(text.text, [&](uint32_t code, size_t begin, size_t end) {
    if (combining_marks()[code] == 0) result.append_part(text, begin, end);
  });
  return result;
}

// SentencePiece's rules of the name: control characters go, and other code points that act as spaces become them.
AlignedText without_controls(const AlignedText& text) {
  const auto in = [](uint32_t code, uint32_t first, uint32_t last) { return code >= first && code <= last; };
  AlignedText result;
  result.tracked = text.tracked;
  for_each_code(text.text, [&](uint32_t code, size_t begin, size_t end) {
    const bool control =
        in(code, 0x01, 0x08) || code == 0x0B || in(code, 0x0E, 0x1F) || code == 0x7F || code == 0x8F || code == 0x9F;
    const bool space = code == 0x09 || code == 0x0A || code == 0x0C || code == 0x0D || code == 0x1680 ||
                       in(code, 0x200B, 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
                       code == 0xFEFF || code == 0xFFFD;
    if (control) return;
    if (space) {
      result.append(" ", text.origin(begin));
    } else {
      result.append_part(text, begin, end);
    }
  });
  return result;
}

AlignedText stripped(const AlignedText& text, bool left, bool right) {
  size_t first = 0, last = text.text.size(), content_end = 0;
  bool inside = false;
  for_each_code(text.text, [&](uint32_t code, size_t begin, size_t end) {
    if (stripped_spaces().contains(code)) return;
    if (!inside) first = begin;
    inside = true;
    content_end = end;
  });
  if (!inside) first = content_end = last;  // spaces only
  AlignedText result;
  result.tracked = text.tracked;
  const size_t begin = left ? first : 0;
  const size_t end = right ? (inside ? content_end : 0) : last;
  if (begin < end) result.append_part(text, begin, end);
  return result;
}

}  // namespace

TextPattern::TextPattern(const TokenizerNode& node) {
  if (node.has("String")) {
    text_ = node.text("String");
    if (text_.empty()) node.refuse("is an empty text, which matches nothing");
  } else if (node.has("Regex")) {
    regex_ = std::make_shared<TokenizerRegex>(node.text("Regex"), node.where());
  } else {
    node.refuse("has neither \"String\" nor \"Regex\"");
  }
}

void TextPattern::find_all(std::string_view text, std::vector<ByteRange>& matches) const {
  if (regex_) {
    regex_->find_all(text, matches);
    return;
  }
  matches.clear();
  for (size_t at = text.find(text_); at != std::string_view::npos; at = text.find(text_, at + text_.size())) {
    matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + text_.size())});
  }
}

bool TextPattern::may_be_in(std::string_view text) const {
  return regex_ || text.find(text_) != std::string_view::npos;
}

AlignedText align_text(std::string_view text, uint32_t origin, bool track) {
  AlignedText result;
  result.tracked = track;
  result.text = text;
  if (track) {
    result.origins.reserve(text.size());
    for_each_code(text, [&](uint32_t, size_t begin, size_t end) {
      result.origins.resize(end, {origin + static_cast<uint32_t>(begin), origin + static_cast<uint32_t>(end)});
    });
  }
  return result;
}

AlignedText replace_all(const AlignedText& text, const std::vector<ByteRange>& matches, std::string_view content) {
  AlignedText result;
  result.tracked = text.tracked;
  result.text.reserve(text.text.size());
  size_t done = 0;
  for (const ByteRange& match : matches) {
    result.append_part(text, done, match.begin);
    result.append(content, match.begin < match.end ? text.origin(match.end - 1) : text.place(match.begin));
    done = match.end;
  }
  result.append_part(text, done, text.text.size());
  return result;
}

AlignedText prepended(const AlignedText& text, std::string_view prefix) {
  AlignedText result;
  result.tracked = text.tracked;
  result.append(prefix, text.origin(0));
  result.append_part(text, 0, text.text.size());
  return result;
}

AlignedText to_byte_characters(const AlignedText& text) {
  AlignedText result;
  result.tracked = text.tracked;
  for (size_t i = 0; i < text.text.size(); i++) {
    result.append_code(kByteCharacters[static_cast<unsigned char>(text.text[i])], text.origin(i));
  }
  return result;
}

Normalizer::Normalizer(const TokenizerNode& node) : where_(node.where()) {
  for (const TokenizerNode& step : flatten_sequence(node, "normalizers")) steps_.push_back(read_step(step));
}

Normalizer::Step Normalizer::read_step(const TokenizerNode& node) {
  static const std::map<std::string, UnicodeForm> kForms = {
      {"NFC", UnicodeForm::nfc}, {"NFD", UnicodeForm::nfd}, {"NFKC", UnicodeForm::nfkc}, {"NFKD", UnicodeForm::nfkd}};
  const std::string type = node.type();
  if (const auto form = kForms.find(type); form != kForms.end()) return form->second;
  if (type == "Lowercase") return Lowercase{};
  if (type == "StripAccents") return StripAccents{};
  if (type == "ByteLevel") return ByteLevel{};
  if (type == "Strip") return Strip{node.boolean("strip_left"), node.boolean("strip_right")};
  if (type == "Nmt") return Nmt{};
  if (type == "Precompiled") return Charsmap(node);
  if (type == "Prepend") return Prepend{node.text("prepend")};
  if (type == "Replace") {
    Replace replace{TextPattern(node.at("pattern")), node.text("content")};
    return replace;
  }
  node.unsupported(fmt::format("a normalizer of type \"{}\"", type));
}

bool Normalizer::leaves_alone(const Step& step, std::string_view text) {
  if (text.empty()) return true;
  if (const auto* form = std::get_if<UnicodeForm>(&step)) return is_surely_normal(*form, text);
  if (const auto* charsmap = std::get_if<Charsmap>(&step)) return charsmap->leaves_alone(text);
  if (const auto* replace = std::get_if<Replace>(&step)) return !replace->pattern.may_be_in(text);
  return false;
}

void Normalizer::refuse_above(size_t most, size_t bytes) const {
  if (bytes <= most) return;
  fail_input(fmt::format("{} expands a text to {} bytes; expected at most {}; correct its Replace and Prepend", where_,
                         bytes, most));
}

AlignedText Normalizer::apply(const Step& step, const AlignedText& text, size_t most) const {
  return std::visit(
      [&](const auto& chosen) {
        using T = std::decay_t<decltype(chosen)>;
        if constexpr (std::is_same_v<T, UnicodeForm>) {
          return to_unicode_form(chosen, text);
        } else if constexpr (std::is_same_v<T, Lowercase>) {
          return lowercase(text);
        } else if constexpr (std::is_same_v<T, StripAccents>) {
          return without_accents(text);
        } else if constexpr (std::is_same_v<T, ByteLevel>) {
          return to_byte_characters(text);
        } else if constexpr (std::is_same_v<T, Nmt>) {
          return without_controls(text);
        } else if constexpr (std::is_same_v<T, Charsmap>) {
          return chosen.apply(text, most);
        } else if constexpr (std::is_same_v<T, Strip>) {
          return stripped(text, chosen.left, chosen.right);
        } else if constexpr (std::is_same_v<T, Prepend>) {
          refuse_above(most, text.text.size() + chosen.text.size());
          return prepended(text, chosen.text);
        } else {
          std::vector<ByteRange> matches;
          chosen.pattern.find_all(text.text, matches);
          size_t bytes = text.text.size() + matches.size() * chosen.content.size();
          for (const ByteRange& match : matches) bytes -= match.end - match.begin;
          refuse_above(most, bytes);
          return replace_all(text, matches, chosen.content);
        }
      },
      step);
}

std::optional<AlignedText> Normalizer::normalize(std::string_view text, uint32_t origin, bool track) const {
  const size_t most = kFreeBytes + kMostGrowth * text.size();
  std::optional<AlignedText> result;
  for (const Step& step : steps_) {
    if (leaves_alone(step, result ? std::string_view(result->text) : text)) continue;
    if (!result) result = align_text(text, origin, track);
    result = apply(step, *result, most);
    refuse_above(most, result->text.size());
  }
  return result;
}

}  // namespace megatrain
