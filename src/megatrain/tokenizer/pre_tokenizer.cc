#include "megatrain/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <map>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "megatrain/tokenizer/regex.h"
#include "megatrain/unicode/tables.h"

namespace megatrain {
namespace {

constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const TokenizerRegex& gpt2_regex() {
  static const TokenizerRegex made(kGpt2Pattern, "the pattern of GPT-2");
  return made;
}

struct Section {
  ByteRange range;
  bool match = false;
};

// The whole text in order: matches and what is between them.
void to_sections(const std::vector<ByteRange>& matches, size_t size, bool invert, std::vector<Section>& sections) {
  sections.clear();
  uint32_t done = 0;
  for (const ByteRange& match : matches) {
    if (done != match.begin) sections.push_back({{done, match.begin}, invert});
    sections.push_back({match, !invert});
    done = match.end;
  }
  if (done != size) sections.push_back({{done, static_cast<uint32_t>(size)}, invert});
}

// Joins sections according to the behaviour, and drops those it removes.
void join_sections(SplitBehavior behavior, std::vector<Section>& sections) {
  size_t kept = 0;
  bool previous = false;
  switch (behavior) {
    case SplitBehavior::isolated: return;
    case SplitBehavior::removed: std::erase_if(sections, [](const Section& section) { return section.match; }); return;
    case SplitBehavior::contiguous:
    case SplitBehavior::merged_with_previous:
      for (const Section section : sections) {
        const bool joins =
            behavior == SplitBehavior::contiguous ? section.match == previous : section.match && !previous;
        if (joins && kept > 0) {
          sections[kept - 1].range.end = section.range.end;
        } else {
          sections[kept++] = section;
        }
        previous = section.match;
      }
      sections.resize(kept);
      return;
    case SplitBehavior::merged_with_next: {
      std::vector<Section> joined;
      for (auto section = sections.rbegin(); section != sections.rend(); ++section) {
        if (section->match && !previous && !joined.empty()) {
          joined.back().range.begin = section->range.begin;
        } else {
          joined.push_back(*section);
        }
        previous = section->match;
      }
      sections.assign(joined.rbegin(), joined.rend());
      return;
    }
  }
}

// Scratch memory of one thread.
struct SplitScratch {
  std::vector<ByteRange> matches;
  std::vector<Section> sections;
};

SplitScratch& this_threads_split_scratch() {
  thread_local SplitScratch scratch;
  return scratch;
}

void emit(const TextPiece& piece, const std::vector<Section>& sections, std::vector<TextPiece>& out) {
  for (const Section& section : sections) {
    if (section.range.begin < section.range.end) out.push_back(piece.part(section.range.begin, section.range.end));
  }
}

void cut_at_matches(const TextPiece& piece, SplitBehavior behavior, bool invert, std::vector<TextPiece>& out) {
  SplitScratch& scratch = this_threads_split_scratch();
  to_sections(scratch.matches, piece.text.size(), invert, scratch.sections);
  join_sections(behavior, scratch.sections);
  emit(piece, scratch.sections, out);
}

void cut_with(const TokenizerRegex& regex, const TextPiece& piece, std::vector<TextPiece>& out) {
  regex.find_all(piece.text, this_threads_split_scratch().matches);
  cut_at_matches(piece, SplitBehavior::isolated, false, out);
}

void cut_on_set(const CodePointMap<uint8_t>& set, SplitBehavior behavior, const TextPiece& piece,
                std::vector<TextPiece>& out) {
  std::vector<ByteRange>& matches = this_threads_split_scratch().matches;
  matches.clear();
  const char* const begin = piece.text.data();
  for (const char* at = begin; at < begin + piece.text.size();) {
    const auto first = static_cast<uint32_t>(at - begin);
    if (set[next_code(at)] != 0) matches.push_back({first, static_cast<uint32_t>(at - begin)});
  }
  cut_at_matches(piece, behavior, false, out);
}

// 0: space, 1: word character, 2: other.
const CodePointMap<uint8_t>& word_kinds() {
  static const CodePointMap<uint8_t> made = [] {
    const auto space = CodePointSet::of(tokenizer_unicode::kRustSpace, tokenizer_unicode::kRustSpace_size);
    const auto word = CodePointSet::of(tokenizer_unicode::kRustWord, tokenizer_unicode::kRustWord_size);
    std::vector<CodePointMap<uint8_t>::Entry> entries;
    for (const CodeRange& range : space.ranges()) entries.push_back({range, 0});
    for (const CodeRange& range : word.ranges()) entries.push_back({range, 1});
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.range.first < b.range.first; });
    return CodePointMap<uint8_t>(2, entries);
  }();
  return made;
}

void cut_words(const TextPiece& piece, std::vector<TextPiece>& out) {
  const CodePointMap<uint8_t>& kinds = word_kinds();
  const char* const begin = piece.text.data();
  size_t first = 0;
  uint8_t last = 0;
  for (const char* at = begin; at < begin + piece.text.size();) {
    const auto here = static_cast<size_t>(at - begin);
    const uint8_t kind = kinds[next_code(at)];
    if (kind == last) continue;
    if (last != 0) out.push_back(piece.part(first, here));
    first = here;
    last = kind;
  }
  if (last != 0) out.push_back(piece.part(first, piece.text.size()));
}

AlignedText as_aligned(const TextPiece& piece, bool track) {
  if (piece.origins == nullptr) return align_text(piece.text, piece.origin, track);
  AlignedText result;
  result.text = piece.text;
  result.tracked = track;
  if (track) result.origins.assign(piece.origins, piece.origins + piece.text.size());
  return result;
}

SplitBehavior read_behavior(const TokenizerNode& node) {
  static const std::map<std::string, SplitBehavior> kNames = {
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  const std::string name = node.text("behavior");
  const auto found = kNames.find(name);
  if (found == kNames.end()) node.refuse("has an unknown \"behavior\"");
  return found->second;
}

CodePointMap<uint8_t> set_of(const uint32_t* pairs, int size) { return membership(CodePointSet::of(pairs, size)); }

}  // namespace

ByteRange TextPiece::origin_of(size_t begin, size_t end) const {
  if (begin >= end) {
    const ByteRange at = origins == nullptr    ? ByteRange{origin + static_cast<uint32_t>(begin), 0}
                         : begin < text.size() ? origins[begin]
                         : text.empty()        ? ByteRange{origin, 0}
                                               : ByteRange{origins[text.size() - 1].end, 0};
    return {at.begin, at.begin};
  }
  if (origins != nullptr) {
    ByteRange all = origins[begin];
    for (size_t i = begin + 1; i < end; i++) {  // a normalizer may have reordered marks
      all.begin = std::min(all.begin, origins[i].begin);
      all.end = std::max(all.end, origins[i].end);
    }
    return all;
  }
  while (begin > 0 && !is_utf8_boundary(text[begin])) begin--;
  while (end < text.size() && !is_utf8_boundary(text[end])) end++;
  return {origin + static_cast<uint32_t>(begin), origin + static_cast<uint32_t>(end)};
}

TextPiece whole_piece(const AlignedText& text, uint32_t origin) {
  return {text.text, text.tracked ? text.origins.data() : nullptr, origin, -1};
}

PreTokenizer::PreTokenizer(const TokenizerNode& node) {
  for (const TokenizerNode& step : flatten_sequence(node, "pretokenizers")) {
    steps_.push_back(read_step(step));
    const auto* const metaspace = std::get_if<Metaspace>(&steps_.back());
    needs_origins_ |= metaspace != nullptr && metaspace->prepend == Prepend::first;
  }
  if (!steps_.empty()) {
    if (auto* last = std::get_if<ByteLevel>(&steps_.back())) {
      last->map = false;
      ends_in_bytes_ = true;
    }
  }
}

void PreTokenizer::end_in_characters() {
  if (ends_in_bytes_) std::get<ByteLevel>(steps_.back()).map = true;
  ends_in_bytes_ = false;
}

PreTokenizer::Step PreTokenizer::read_step(const TokenizerNode& node) {
  using namespace tokenizer_unicode;
  const std::string type = node.type();
  if (type == "ByteLevel") {
    node.boolean("trim_offsets");  // concerns offsets, not text
    return ByteLevel{node.boolean("add_prefix_space"), node.boolean_or("use_regex", true)};
  }
  if (type == "Split") {
    return Split{TextPattern(node.at("pattern")), read_behavior(node), node.boolean("invert")};
  }
  if (type == "Digits") {
    const bool alone = node.boolean("individual_digits");
    return SplitOnSet{set_of(kRustNumeric, kRustNumeric_size),
                      alone ? SplitBehavior::isolated : SplitBehavior::contiguous};
  }
  if (type == "Punctuation") {
    const SplitBehavior behavior = node.has("behavior") ? read_behavior(node) : SplitBehavior::isolated;
    return SplitOnSet{set_of(kPunctuation, kPunctuation_size), behavior};
  }
  if (type == "WhitespaceSplit") return SplitOnSet{set_of(kRustSpace, kRustSpace_size), SplitBehavior::removed};
  if (type == "Whitespace") return Words{};
  if (type == "Metaspace") {
    static const std::map<std::string, Prepend> kSchemes = {
        {"always", Prepend::always}, {"first", Prepend::first}, {"never", Prepend::never}};
    Metaspace metaspace;
    append_utf8(metaspace.replacement, node.code("replacement"));
    const auto scheme = kSchemes.find(node.text_or("prepend_scheme", "always"));
    if (scheme == kSchemes.end()) node.refuse("has an unknown \"prepend_scheme\"");
    metaspace.prepend = scheme->second;
    if (!node.boolean_or("add_prefix_space", true) && metaspace.prepend != Prepend::never) {
      node.refuse("has an \"add_prefix_space\" that contradicts its \"prepend_scheme\"");
    }
    metaspace.split = node.boolean_or("split", true);
    return metaspace;
  }
  node.unsupported(fmt::format("a pre-tokenizer of type \"{}\"", type));
}

void PreTokenizer::apply_byte_level(const ByteLevel& step, TextPiece piece, TextPool& pool, bool track,
                                    std::vector<TextPiece>& out) {
  if (step.add_prefix_space && piece.text.front() != ' ') {
    piece = whole_piece(pool.keep(prepended(as_aligned(piece, track), " ")), piece.origin);
  }
  const size_t first = out.size();
  if (step.use_regex) {
    cut_with(gpt2_regex(), piece, out);
  } else {
    out.push_back(piece);
  }
  if (!step.map) return;
  for (size_t i = first; i < out.size(); i++) {
    out[i] = whole_piece(pool.keep(to_byte_characters(as_aligned(out[i], track))), out[i].origin);
  }
}

void PreTokenizer::apply_metaspace(const Metaspace& step, const TextPiece& piece, TextPool& pool, bool track,
                                   std::vector<TextPiece>& out) {
  SplitScratch& scratch = this_threads_split_scratch();
  AlignedText text = as_aligned(piece, track);
  scratch.matches.clear();
  for (size_t at = text.text.find(' '); at != std::string::npos; at = text.text.find(' ', at + 1)) {
    scratch.matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + 1)});
  }
  if (!scratch.matches.empty()) text = replace_all(text, scratch.matches, step.replacement);
  const bool wanted = step.prepend == Prepend::always || (step.prepend == Prepend::first && piece.origin == 0);
  if (wanted && !text.text.starts_with(step.replacement)) text = prepended(text, step.replacement);
  const TextPiece whole = whole_piece(pool.keep(std::move(text)), piece.origin);
  if (!step.split) {
    out.push_back(whole);
    return;
  }
  scratch.matches.clear();
  for (size_t at = whole.text.find(step.replacement); at != std::string_view::npos;
       at = whole.text.find(step.replacement, at + step.replacement.size())) {
    scratch.matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + step.replacement.size())});
  }
  cut_at_matches(whole, SplitBehavior::merged_with_next, false, out);
}

void PreTokenizer::apply(const Step& step, TextPiece piece, TextPool& pool, bool track, std::vector<TextPiece>& out) {
  std::visit(
      [&](const auto& chosen) {
        using T = std::decay_t<decltype(chosen)>;
        if constexpr (std::is_same_v<T, ByteLevel>) {
          apply_byte_level(chosen, piece, pool, track, out);
        } else if constexpr (std::is_same_v<T, Metaspace>) {
          apply_metaspace(chosen, piece, pool, track, out);
        } else if constexpr (std::is_same_v<T, Split>) {
          chosen.pattern.find_all(piece.text, this_threads_split_scratch().matches);
          cut_at_matches(piece, chosen.behavior, chosen.invert, out);
        } else if constexpr (std::is_same_v<T, SplitOnSet>) {
          cut_on_set(chosen.set, chosen.behavior, piece, out);
        } else {
          cut_words(piece, out);
        }
      },
      step);
}

void PreTokenizer::cut(std::vector<TextPiece>& pieces, std::vector<TextPiece>& spare, TextPool& pool,
                       bool track) const {
  for (const Step& step : steps_) {
    spare.clear();
    for (const TextPiece& piece : pieces) {
      if (piece.token >= 0) {
        spare.push_back(piece);
      } else if (!piece.text.empty()) {
        apply(step, piece, pool, track, spare);
      }
    }
    pieces.swap(spare);
  }
}

}  // namespace megatrain
