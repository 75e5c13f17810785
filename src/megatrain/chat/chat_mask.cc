#include "megatrain/chat/chat_mask.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "megatrain/chat/chat_layout.h"

namespace megatrain {
namespace {

using jinja::Text;

constexpr std::string_view kSpaces = " \t\r\n";
constexpr size_t kMaxVariants = 16;  // most renderings for prompts, for plain answers and for ends, each

using Place = ChatLayout::Place;

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first -
      a.begin());
}

bool is_blank(std::string_view text) { return text.find_first_not_of(kSpaces) == std::string_view::npos; }

class Masker {
 public:
  explicit Masker(const MaskInputs& inputs)
      : inputs_(inputs),
        text_(inputs.text),
        bytes_(inputs.text.bytes()),
        ends_(inputs.end_tokens),
        layout_(inputs.text, inputs.roles, inputs.special_tokens) {
    learn_ends();
  }

  ChatMask run() {
    ChatMask mask;
    for (size_t i = 0; i < inputs_.roles.size(); ++i) {
      if (!is_assistant(i)) continue;
      const Place* const main = layout_.main_place(i);
      bool written = false;
      for (const Place& place : layout_.places(i)) {
        if (!place.data && &place != main) continue;
        const Begin begin = answer_begin(i, place, &place == main);
        const End end = answer_end(i, place, &place == main, begin.byte);
        if (begin.byte >= end.byte) continue;
        mask.trained.push_back({begin.byte, end.byte, static_cast<int32_t>(i)});
        mask.ends = (written && mask.ends) || end.ends;
        mask.sure = mask.sure && begin.sure;
        written = true;
      }
    }
    make_disjoint(mask.trained);
    return mask;
  }

 private:
  // If a turn holds several answers, each one ends where the next begins.
  static void make_disjoint(std::vector<TrainedSpan>& spans) {
    std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    size_t end = 0;
    for (size_t i = 0; i < spans.size(); ++i) {
      TrainedSpan& span = spans[i];
      span.begin = std::max(span.begin, end);
      if (i + 1 < spans.size() && spans[i + 1].end >= span.end) span.end = std::min(span.end, spans[i + 1].begin);
      end = std::max(span.end, end);
    }
    std::erase_if(spans, [](const TrainedSpan& span) { return span.begin >= span.end; });
  }

  bool is_assistant(size_t message) const { return inputs_.roles[message] == "assistant"; }

  // Learns from this conversation which of the template's tokens end turns:
  // - tokens between an answer and the header of the next message (the text before the first message of that role)
  // - tokens that come first between two messages, both before an answer and after one, but not before the first
  //   message
  //
  // The first token between two answers may belong to the second one's header, so it proves nothing.
  void learn_ends() {
    std::map<std::string_view, std::string_view> headers;  // the text before the first message of each role
    std::string_view beginning;                            // before the first message
    SpecialTokens before_answers, behind_answers;
    for (size_t i = 0; i < inputs_.roles.size(); ++i) {
      const Place* const place = layout_.main_place(i);
      if (!place || !place->data) continue;
      const std::string_view before = bytes_.substr(0, place->data->begin);
      if (headers.empty()) beginning = before;
      const auto [header, is_first] = headers.emplace(inputs_.roles[i], before);
      const Place* const last = i == 0 ? nullptr : layout_.main_place(i - 1);
      if (!last || !last->data || last->data->end > before.size()) continue;
      const std::string_view between = before.substr(last->data->end);
      const std::string_view token = inputs_.special_tokens.at(between, skip_spaces(between, 0));
      const bool alone = is_assistant(i) != is_assistant(i - 1);
      if (alone && is_assistant(i)) before_answers.add(std::string(token));
      if (!is_assistant(i - 1) || token.empty()) continue;
      if (alone) behind_answers.add(std::string(token));
      if (!is_first) add_ends(between, header->second);
    }
    for (const std::string& token : behind_answers.all()) {
      if (before_answers.contains(token) && beginning.find(token) == std::string_view::npos) ends_.add(token);
    }
  }

  void add_ends(std::string_view between, std::string_view header) {
    while (!between.empty() && !header.empty() && between.back() == header.back()) {
      between.remove_suffix(1);
      header.remove_suffix(1);
    }
    for (size_t at = skip_spaces(between, 0); at < between.size(); at = skip_spaces(between, at)) {
      const std::string_view token = inputs_.special_tokens.at(between, at);
      if (token.empty()) break;
      ends_.add(std::string(token));
      at += token.size();
    }
  }

  static size_t skip_spaces(std::string_view text, size_t at) {
    return std::min(text.find_first_not_of(kSpaces, at), text.size());
  }

  // The text that asks for an answer, starting at Place::from.
  struct Prompt {
    std::string text;
    bool asks = false;   // part of it is written only for add_generation_prompt
    std::string header;  // that part
  };

  // The prompt depends on the previous message, so one answer after each role is rendered. If the template refuses that
  // rendering, others are tried, up to kMaxVariants.
  const Prompt& prompt_of(size_t i) {
    if (i == 0) return prompt_of_all();
    const auto known = prompts_.find(inputs_.roles[i - 1]);
    if (known != prompts_.end()) return known->second;
    const Place* const place = layout_.main_place(i);
    if (place && prompts_rendered_ < kMaxVariants) {
      ++prompts_rendered_;
      if (auto prompt = prompt_before(i, *place)) {
        return prompts_.emplace(inputs_.roles[i - 1], std::move(*prompt)).first->second;
      }
    }
    return prompt_of_all();
  }

  std::optional<Prompt> prompt_before(size_t i, const Place& place) const {
    const auto prefix = inputs_.render({.count = i, .generation_prompt = true});
    if (!prefix) return std::nullopt;
    const std::string_view bytes = prefix->bytes();
    const auto prompt = [&](std::string_view text) {
      Prompt found{.text = std::string(text), .asks = !text.empty(), .header = std::string(text)};
      const auto unasked = place.own ? std::nullopt : inputs_.render({.count = i});
      if (unasked && bytes.starts_with(unasked->bytes())) {
        found.header = bytes.substr(std::max(unasked->size(), bytes.size() - text.size()));
        found.asks = !found.header.empty();
      }
      return found;
    };
    if (common_prefix(bytes_, bytes) >= place.from) return prompt(bytes.substr(place.from));
    const ChatLayout layout(*prefix, inputs_.roles, inputs_.special_tokens);
    for (size_t j = i; j-- > 0;) {
      // Start from the last earlier turn that both renderings have, and take what the prefix has beyond it.
      const Place* const here = layout_.main_place(j);
      const Place* const there = layout.main_place(j);
      if (!here || !there || here->bytes.begin >= place.from) continue;
      const std::string_view before = bytes_.substr(here->bytes.begin, place.from - here->bytes.begin);
      const std::string_view tail = bytes.substr(there->bytes.begin);
      return prompt(tail.starts_with(before) ? tail.substr(before.size()) : bytes.substr(there->bytes.end));
    }
    return std::nullopt;
  }

  // What the generation prompt adds to the complete conversation.
  const Prompt& prompt_of_all() {
    if (!prompt_of_all_) {
      const size_t count = inputs_.roles.size();
      const auto with = inputs_.render({.count = count, .generation_prompt = true});
      const auto without = inputs_.render({.count = count});
      size_t begin = with ? with->size() : 0;
      if (with && without && with->bytes().starts_with(without->bytes())) {
        begin = without->size();
      } else if (with && !with->runs().empty() && with->runs().back().origin.turn < 0) {
        begin = with->runs().size() > 1 ? with->runs()[with->runs().size() - 2].end : with->size();
      }
      prompt_of_all_.emplace();
      prompt_of_all_->text = with ? with->bytes().substr(begin) : std::string();
      prompt_of_all_->asks = !prompt_of_all_->text.empty();
      prompt_of_all_->header = prompt_of_all_->text;
    }
    return *prompt_of_all_;
  }

  // The text before the content of message i when the message has content only. Either every answer of the conversation
  // is reduced to its content, or, with `alone`, only this one, which is then the last message.
  std::optional<std::string> plain_header(size_t i, bool alone) {
    if (!alone) {
      if (!plain_) {
        plain_ = inputs_.render({.count = inputs_.roles.size(), .plain = true}).value_or(Text());
        plain_layout_.emplace(*plain_, inputs_.roles, inputs_.special_tokens);
      }
      return header_in(*plain_, *plain_layout_, i);
    }
    const std::string before = i == 0 ? "" : inputs_.roles[i - 1];
    const auto known = plain_headers_.find(before);
    if (known != plain_headers_.end()) return known->second;
    if (plain_headers_.size() >= kMaxVariants) return std::nullopt;
    std::optional<std::string> header;
    if (const auto text = inputs_.render({.count = i + 1, .plain = true, .plain_message = i})) {
      header = header_in(*text, ChatLayout(*text, inputs_.roles, inputs_.special_tokens), i);
    }
    plain_headers_.emplace(before, header);
    return header;
  }

  std::optional<std::string> header_in(const Text& text, const ChatLayout& layout, size_t i) const {
    const Place* const place = layout.main_place(i);
    const Place* const here = layout_.main_place(i);
    if (!place || !place->data || !here || here->own != place->own) return std::nullopt;
    return text.bytes().substr(place->from, place->data->begin - place->from);
  }

  struct Begin {
    size_t byte = 0;
    bool sure = true;  // the answer begins like its prompt or like a plain answer
  };

  Begin answer_begin(size_t i, const Place& place, bool main) {
    if (!place.own && !main) return {place.data->begin};
    const std::string_view written = bytes_.substr(place.from, place.bytes.end - place.from);
    const size_t most = place.data ? place.data->begin - place.from : written.size();
    const Prompt& prompt = prompt_of(i);
    Begin header{.byte = most};  // relative to place.from
    if (const size_t size = prompt.asks ? prompt_size(written, prompt.text) : 0; size > 0) {
      header.byte = size;
    } else if (main) {
      header = header_size(i, written.substr(0, most), place.data.has_value(), prompt);
    }
    return {after_role(place.from + header.byte, place, static_cast<int32_t>(i)), header.sure};
  }

  // Length of the prompt if the text begins with it, otherwise 0. White space at the prompt's end may differ.
  static size_t prompt_size(std::string_view text, std::string_view prompt) {
    const size_t visible = prompt.find_last_not_of(kSpaces);
    const size_t common = common_prefix(text, prompt);
    return common == prompt.size() || (visible != std::string_view::npos && common > visible) ? common : 0;
  }

  // The header of an answer that does not begin with its prompt: that of a plain answer, otherwise what the answer
  // shares with both. `header` may extend into the answer itself.
  Begin header_size(size_t i, std::string_view header, bool has_data, const Prompt& prompt) {
    const size_t asked = whole_part(header, prompt.text);
    Begin begin{.byte = asked, .sure = false};
    bool blind = true;  // there is no plain answer to compare with
    for (const bool alone : {false, true}) {
      const auto plain = plain_header(i, alone);
      if (!plain) continue;
      blind = false;
      // Without a generation prompt the template may still write something before the answer, such as a space.
      const bool begins = !prompt.asks && plain->starts_with(prompt.text) &&
                          is_blank(std::string_view(*plain).substr(prompt.text.size()));
      const std::string_view text = begins ? std::string_view(prompt.text) : *plain;
      if (header.starts_with(text) && text.size() >= asked) return {text.size()};
      const size_t shared = whole_part(header, text);
      begin.sure = begin.sure || (asked > 0 && shared == asked);
      begin.byte = std::max(begin.byte, shared);
    }
    if (blind && begin.byte == 0 && has_data && prompt.asks) begin.byte = header.size();
    return begin;
  }

  // Length of the common prefix. If the two differ within it, it is cut back to the last whole line or special token.
  size_t whole_part(std::string_view header, std::string_view text) const {
    const size_t common = common_prefix(header, text);
    if (common == header.size() || common == text.size()) return common;
    const size_t line = text.substr(0, common).rfind('\n');
    size_t whole = line == std::string_view::npos ? 0 : line + 1;
    for (auto token = inputs_.special_tokens.next(text, 0); token && token.end() <= common;
         token = inputs_.special_tokens.next(text, token.end())) {
      whole = std::max(whole, token.end());
    }
    return whole;
  }

  // A role that the template wrote into the turn belongs to the header, whatever the prompt. The answer then begins
  // with the data after it.
  size_t after_role(size_t begin, const Place& place, int32_t message) const {
    if (!place.data || place.data->begin <= begin) return begin;
    for (auto run = run_at(begin); run != text_.runs().end() && begin_of(run) < place.data->begin; ++run) {
      if (run->origin.role && run->origin.message == message) return place.data->begin;
    }
    return begin;
  }

  using Run = std::vector<Text::Run>::const_iterator;
  Run run_at(size_t byte) const {
    return std::upper_bound(text_.runs().begin(), text_.runs().end(), byte,
                            [](size_t at, const Text::Run& run) { return at < run.end; });
  }
  size_t begin_of(Run run) const { return run == text_.runs().begin() ? 0 : std::prev(run)->end; }

  struct End {
    size_t byte = 0;
    bool ends = false;   // with a token, or with any text if no tokens are known
    bool known = false;  // with a token that is known to end an answer
  };

  End answer_end(size_t i, const Place& place, bool main, size_t begin) {
    const std::string& prompt = prompt_of(i).header;
    End end = written_end(place, begin, prompt);
    if (end.known) return end;
    // After the token that closes the turn, the next turn may begin with a token known to end an answer. The model has
    // to write that one too.
    const auto later = end_in_next(end.byte, end.ends ? inputs_.end_tokens : ends_);
    if (later && (!end.ends || text_.origin_at(*later - 1).turn >= 0)) end = {*later, true};
    if (main && place.data) {
      const size_t closed = place.data->end + close_of(i, place, prompt);
      if (closed > end.byte) end = {closed, true};
    }
    return end;
  }

  End written_end(const Place& place, size_t begin, std::string_view prompt) const {
    const size_t last = std::max(begin, place.data ? place.data->end : begin);
    const auto token_end = [&](size_t stop) { return end_of_turn(bytes_.substr(0, stop), last, prompt); };
    if (const auto end = token_end(place.bytes.end)) return *end;
    Run run = run_at(place.bytes.end);  // text outside the turn's loop iteration may end it
    while (run != text_.runs().end() && run->origin.turn < 0 && run->origin.message < 0) ++run;
    const size_t after = std::max(begin_of(run), place.bytes.end);
    if (const auto end = token_end(after)) return *end;
    const size_t visible = bytes_.substr(0, place.bytes.end).find_last_not_of(kSpaces);
    const size_t end = std::max(last, visible == std::string_view::npos ? 0 : visible + 1);
    return {end, end > last && inputs_.special_tokens.empty()};
  }

  // The end of the first end token, otherwise of the last special token that does not belong to the next prompt.
  std::optional<End> end_of_turn(std::string_view text, size_t from, std::string_view prompt) const {
    std::optional<End> end;
    bool header = false;  // a header has begun
    for (auto token = inputs_.special_tokens.next(text, from); token;
         token = inputs_.special_tokens.next(text, token.end())) {
      if (inputs_.end_tokens.contains(token.token)) return End{token.end(), true, true};
      header = header || (prompt.find(token.token) != std::string_view::npos && !ends_.contains(token.token));
      if (!header) end = End{token.end(), true};
    }
    return end;
  }

  // How much of the text after the answer's data closes the answer. That is what the template writes there, without a
  // prompt, when the answer is the last message, provided that the conversation has the same text. Cached by that text.
  size_t close_of(size_t i, const Place& place, std::string_view prompt) {
    const std::string_view behind = bytes_.substr(place.data->end, data_after(place.data->end) - place.data->end);
    const auto known = closes_.find(behind);
    if (known != closes_.end()) return known->second;
    if (closes_.size() >= kMaxVariants) return 0;
    std::string_view close;
    if (const auto text = inputs_.render({.count = i + 1})) {
      const ChatLayout layout(*text, inputs_.roles, inputs_.special_tokens);
      const Place* const last = layout.main_place(i);
      if (last && last->data) close = text->bytes();
      if (!close.empty()) close = close.substr(last->data->end, last->bytes.end - last->data->end);
      close = close.substr(0, prompt_in(close, prompt));
      close = close.substr(0, close.find_last_not_of(kSpaces) + 1);
      const bool closes = behind.starts_with(close) && inputs_.special_tokens.next(close, 0);
      return closes_.emplace(behind, closes ? close.size() : 0).first->second;
    }
    return closes_.emplace(behind, 0).first->second;
  }

  // Where a prompt, or its beginning at the end of the text, starts in the text; the text's size if there is none.
  size_t prompt_in(std::string_view text, std::string_view prompt) const {
    for (auto token = inputs_.special_tokens.next(text, 0); token && !prompt.empty();
         token = inputs_.special_tokens.next(text, token.end())) {
      const std::string_view rest = text.substr(token.begin);
      if (rest.starts_with(prompt) || prompt.starts_with(rest)) return token.begin;
    }
    return text.size();
  }

  // Where the next message data other than a role begins.
  size_t data_after(size_t byte) const {
    Run run = run_at(byte);
    while (run != text_.runs().end() && (run->origin.message < 0 || run->origin.role)) ++run;
    return run == text_.runs().end() ? bytes_.size() : std::max(byte, begin_of(run));
  }

  // The end of the end tokens at `from`, with only white space before and between them.
  std::optional<size_t> end_in_next(size_t from, const SpecialTokens& ends) const {
    const std::string_view text = bytes_.substr(0, data_after(from));
    std::optional<size_t> end;
    for (size_t at = skip_spaces(text, from); at < text.size(); at = skip_spaces(text, *end)) {
      const std::string_view token = ends.at(text, at);
      if (token.empty()) break;
      end = at + token.size();
      if (inputs_.end_tokens.contains(token)) break;
    }
    return end;
  }

  const MaskInputs& inputs_;
  const Text& text_;
  std::string_view bytes_;
  SpecialTokens ends_;  // the given end tokens and those learned from this conversation
  ChatLayout layout_;
  std::map<std::string, Prompt> prompts_;  // by the role of the previous message
  size_t prompts_rendered_ = 0;
  std::optional<Prompt> prompt_of_all_;
  std::optional<Text> plain_;
  std::optional<ChatLayout> plain_layout_;
  std::map<std::string, std::optional<std::string>> plain_headers_;  // by the role of the previous message
  std::map<std::string, size_t, std::less<>> closes_;                // by the text after an answer's data
};

}  // namespace

ChatMask find_trained(const MaskInputs& inputs) { return Masker(inputs).run(); }

ChatMask find_generated(const jinja::Text& text, const SpecialTokens& special_tokens) {
  ChatMask mask;
  size_t begin = 0, data_end = 0;  // where the message's data ends in the last span
  for (const Text::Run& run : text.runs()) {
    const ChatLayout::Bytes bytes{begin, run.end};
    begin = run.end;
    if (!run.origin.generation) continue;
    if (!mask.trained.empty() && mask.trained.back().end == bytes.begin &&
        mask.trained.back().message == run.origin.turn) {
      mask.trained.back().end = bytes.end;
    } else {
      mask.trained.push_back({bytes.begin, bytes.end, run.origin.turn});
      data_end = bytes.begin;
    }
    if (run.origin.message >= 0 && !run.origin.role) data_end = bytes.end;
  }
  if (!mask.trained.empty()) {
    const std::string_view behind = std::string_view(text.bytes()).substr(data_end, mask.trained.back().end - data_end);
    mask.ends = special_tokens.empty() ? !is_blank(behind) : bool(special_tokens.next(behind, 0));
  }
  return mask;
}

}  // namespace megatrain
