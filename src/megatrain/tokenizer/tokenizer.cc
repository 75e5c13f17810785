#include "megatrain/tokenizer/tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/replace.h"
#include "megatrain/tokenizer/tokenizer_json.h"
#include "megatrain/unicode/unicode.h"

namespace megatrain {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Scratch memory of one thread.
struct Scratch {
  std::vector<TextPiece> pieces, spare;
  std::vector<ModelToken> tokens;
  TextPool pool;
};

Scratch& this_threads_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

TokenizerNode checked(const TokenizerNode& root) {
  if (!root.json().is_object()) root.refuse("is not a JSON object");
  if (root.has("version") && root.text("version") != "1.0")
    root.unsupported(fmt::format("the version \"{}\"", root.text("version")));
  return root;
}

template <typename T>
T part_of(const TokenizerNode& root, const char* key) {
  return root.has(key) ? T(root.at(key)) : T();
}

std::variant<Bpe, Unigram> read_model(const TokenizerNode& node, PreTokenizer& pre_tokenizer) {
  if (!is_unigram(node)) return Bpe(node, pre_tokenizer.ends_in_bytes());
  pre_tokenizer.end_in_characters();
  return Unigram(node);
}

}  // namespace

Tokenizer Tokenizer::from_file(const std::string& path, const std::vector<ConfigToken>& more) {
  constexpr int64_t kMaxBytes = 256 * kMiB;
  const std::optional<std::string> text = read_text_if_there(path, kMaxBytes);
  if (!text) fail_input(fmt::format("{} does not exist; expected a model's tokenizer.json; check the path.", path));
  return from_json(*text, path, more);
}

Tokenizer Tokenizer::from_json(std::string_view text, const std::string& file, const std::vector<ConfigToken>& more) {
  nlohmann::json json = parse_json(text, file, "correct the file or download it again");
  if (json.is_object() && (!json.contains("added_tokens") || json["added_tokens"].is_null()))
    json["added_tokens"] = nlohmann::json::array();
  return Tokenizer(checked(TokenizerNode(json, file, "")), more);
}

Tokenizer::Tokenizer(const TokenizerNode& root, const std::vector<ConfigToken>& more)
    : normalizer_(part_of<Normalizer>(root, "normalizer")),
      pre_tokenizer_(part_of<PreTokenizer>(root, "pre_tokenizer")),
      model_(read_model(root.at("model"), pre_tokenizer_)),
      added_(root.at("added_tokens"), more, vocabulary(), normalizer_),
      decoder_(part_of<Decoder>(root, "decoder")) {
  vocab_size_ = vocabulary().last_id() + 1;
  for (const auto& [id, token] : added_.by_id()) vocab_size_ = std::max<int64_t>(vocab_size_, id + 1);
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"));
}

const Vocabulary& Tokenizer::vocabulary() const {
  return std::visit([](const auto& model) -> const Vocabulary& { return model.vocabulary(); }, model_);
}

void Tokenizer::read_post_processor(const TokenizerNode& node) {
  for (const TokenizerNode& step : flatten_sequence(node, "processors")) {
    const std::string type = step.type();
    if (type == "ByteLevel") continue;  // affects offsets only
    if (type != "TemplateProcessing") step.unsupported(fmt::format("a post-processor of type \"{}\"", type));
    if (!template_.empty()) step.unsupported("a second template");
    for (const TokenizerNode& item : step.at("single").items()) {
      TemplatePart part;
      if (item.has("Sequence")) {
        if (item.at("Sequence").text("id") != "A")
          item.unsupported("a second sequence in the template for a single text");
        part.text = true;
      } else {
        const std::string name = item.at("SpecialToken").text("id");
        const TokenizerNode token = step.at("special_tokens").at(name.c_str());
        for (const TokenizerNode& id : token.at("ids").items()) {
          if (!id.json().is_number_unsigned() || id.json().get<uint64_t>() >= static_cast<uint64_t>(vocab_size_)) {
            id.refuse(fmt::format("is not an id of the vocabulary, which has {} ids", vocab_size_));
          }
          part.ids.push_back(id.json().get<int32_t>());
        }
      }
      template_.push_back(std::move(part));
    }
  }
}

void Tokenizer::encode_into(std::string_view text, std::vector<int32_t>& ids, std::vector<ByteRange>* ranges) const {
  if (text.size() >= UINT32_MAX / 4) {
    fail_input(fmt::format("A text of {} bytes is too long to tokenize at once; split it below 1 GiB.", text.size()));
  }
  if (const size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    fail_input(fmt::format("A text is not UTF-8: byte {} is 0x{:02x}; convert the text to UTF-8.", bad,
                           static_cast<unsigned char>(text[bad])));
  }
  const bool track = ranges != nullptr || pre_tokenizer_.needs_origins();
  Scratch& scratch = this_threads_scratch();
  scratch.pool.clear();
  scratch.spare.clear();
  added_.cut({.text = text}, false, scratch.spare);
  scratch.pieces.clear();
  for (const TextPiece& piece : scratch.spare) {
    if (piece.token >= 0) {
      scratch.pieces.push_back(piece);
    } else if (std::optional<AlignedText> normal = normalizer_.normalize(piece.text, piece.origin, track)) {
      added_.cut(whole_piece(scratch.pool.keep(std::move(*normal)), piece.origin), true, scratch.pieces);
    } else {
      added_.cut(piece, true, scratch.pieces);
    }
  }
  pre_tokenizer_.cut(scratch.pieces, scratch.spare, scratch.pool, track);

  for (const TextPiece& piece : scratch.pieces) {
    if (piece.token >= 0) {
      ids.push_back(piece.token);
      if (ranges != nullptr) ranges->push_back(piece.origin_of(0, piece.text.size()));
      continue;
    }
    scratch.tokens.clear();
    std::visit([&](const auto& model) { model.encode(piece.text, scratch.tokens); }, model_);
    for (const ModelToken& token : scratch.tokens) {
      ids.push_back(token.id);
      if (ranges != nullptr) ranges->push_back(piece.origin_of(token.begin, token.end));
    }
  }
}

Encoding Tokenizer::encode_all(std::string_view text, bool add_special_tokens, bool track) const {
  Encoding encoding;
  std::vector<ByteRange>* const ranges = track ? &encoding.ranges : nullptr;
  if (template_.empty()) {
    encode_into(text, encoding.ids, ranges);
    return encoding;
  }
  for (const TemplatePart& part : template_) {
    if (part.text) {
      encode_into(text, encoding.ids, ranges);
    } else if (add_special_tokens) {
      encoding.ids.insert(encoding.ids.end(), part.ids.begin(), part.ids.end());
      if (track) {
        const uint32_t at = encoding.ranges.empty() ? 0 : encoding.ranges.back().end;
        encoding.ranges.resize(encoding.ids.size(), ByteRange{at, at});
      }
    }
  }
  return encoding;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return encode_all(text, add_special_tokens, false).ids;
}

Encoding Tokenizer::encode_with_ranges(std::string_view text, bool add_special_tokens) const {
  return encode_all(text, add_special_tokens, true);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    const AddedToken* const added = added_.find(id);
    const std::string* const text = added != nullptr ? &added->written : vocabulary().token_of(id);
    if (text == nullptr || (skip_special_tokens && added_.is_special(*text))) continue;
    tokens.push_back(*text);
  }
  return decoder_.decode(std::move(tokens));
}

int32_t Tokenizer::id_of(std::string_view token) const {
  const AddedToken* const added = added_.find(token);
  return added != nullptr ? added->id : vocabulary().id_of(token);
}

std::string Tokenizer::token_of(int32_t id) const {
  if (const AddedToken* const added = added_.find(id)) return added->content;
  const std::string* const token = vocabulary().token_of(id);
  return token == nullptr ? std::string() : *token;
}

std::string Tokenizer::bytes_of(int32_t id) const {
  const AddedToken* const added = added_.find(id);
  const std::string* const text = added != nullptr ? &added->written : vocabulary().token_of(id);
  return text == nullptr ? std::string() : decoder_.bytes_of(*text);
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* const added = added_.find(id);
  return added != nullptr && added->special;
}

// The text that the ids after the given ones add. Later bytes may show that text already given was not valid; then the
// new ids are decoded on their own.
std::string StreamDecoder::fresh() const {
  std::string text = tokenizer_.decode(ids_, skip_special_tokens_);
  if (text.starts_with(given_)) return text.substr(given_.size());
  return tokenizer_.decode(std::span(ids_).subspan(given_count_), skip_special_tokens_);
}

std::string StreamDecoder::add(int32_t id) {
  ids_.push_back(id);
  std::string text = fresh();
  if (text.empty()) return text;
  constexpr size_t kMaxHeld = 16;  // more than the bytes of a character
  if (text.ends_with(kReplacement) && ids_.size() - given_count_ < kMaxHeld) return "";
  // The ids of this step stay in front of the next ones, so that those are not decoded as the beginning of a text.
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(given_count_));
  given_ = tokenizer_.decode(ids_, skip_special_tokens_);
  given_count_ = ids_.size();
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = given_count_ < ids_.size() ? fresh() : "";
  ids_.clear();
  given_.clear();
  given_count_ = 0;
  return text;
}

}  // namespace megatrain
