#include "megatrain/text/chat_mask.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace megatrain {
namespace {

using jinja::Origin;
using jinja::Text;

constexpr std::string_view kSpaces = " \t\r\n";
constexpr int kMaxPrompts = 16;  // renderings made to see a generation prompt

struct Interval {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

// Where a message is written: what its turn wrote without a gap, or a run of its data outside of all turns.
struct Place {
  Interval bytes;
  std::optional<Interval> data;  // from the first byte of the message's data to the last
  size_t data_size = 0;
  bool own = false;  // its turn wrote it
};

// The places of every message, found in one pass.
class Layout {
 public:
  Layout(const Text& text, const std::vector<std::string>& roles, const SpecialTokens& tokens)
      : text_(text), tokens_(tokens), roles_(roles), places_(roles.size()) {
    size_t begin = 0;
    for (const Text::Run& run : text.runs()) {
      add({begin, run.end}, run.origin);
      begin = run.end;
    }
  }

  const std::vector<Place>& places(size_t message) const { return places_[message]; }

  // Where most of the message's data stands.
  const Place* main_place(size_t message) const {
    const auto& places = places_[message];
    const auto found = std::max_element(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return std::pair(a.own, a.data_size) < std::pair(b.own, b.data_size);
    });
    return found == places.end() ? nullptr : &*found;
  }

 private:
  bool is_message(int32_t index) const { return index >= 0 && static_cast<size_t>(index) < roles_.size(); }

  void add(Interval bytes, const Origin& origin) {
    const bool data = is_message(origin.message) && !origin.role;
    if (is_message(origin.turn)) {
      auto& places = places_[static_cast<size_t>(origin.turn)];
      if (places.empty() || !places.back().own || places.back().bytes.end != bytes.begin) {
        places.push_back({.bytes = bytes, .own = true});
      }
      places.back().bytes.end = bytes.end;
      if (data && origin.message == origin.turn) add_data(places.back(), bytes);
    }
    const bool quoted = is_message(origin.turn) && roles_[static_cast<size_t>(origin.turn)] != "assistant";
    if (data && origin.message != origin.turn && !quoted) {
      auto& places = places_[static_cast<size_t>(origin.message)];
      if (places.empty() || places.back().own || !continues(places.back(), bytes.begin, origin.message)) {
        places.push_back({.bytes = bytes});
      }
      places.back().bytes.end = bytes.end;
      add_data(places.back(), bytes);
    }
    if (is_message(origin.message)) last_written_ = origin.message;
  }

  static void add_data(Place& place, Interval bytes) {
    if (!place.data) place.data = bytes;
    place.data->end = bytes.end;
    place.data_size += bytes.size();
  }

  // Nothing but a few words of the template stands between.
  bool continues(const Place& place, size_t begin, int32_t message) const {
    const std::string_view between = std::string_view(text_.bytes()).substr(0, begin).substr(place.bytes.end);
    return last_written_ == message && between.find('\n') == std::string_view::npos && !tokens_.next(between, 0);
  }

  const Text& text_;
  const SpecialTokens& tokens_;
  const std::vector<std::string>& roles_;
  std::vector<std::vector<Place>> places_;
  int32_t last_written_ = -1;
};

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
        const size_t begin = answer_begin(i, place, &place == main);
        const Answer answer = answer_end(place, begin, prompt_of(i));
        if (begin >= answer.end) continue;
        mask.trained.push_back({begin, answer.end, static_cast<int32_t>(i)});
        mask.ends = (written && mask.ends) || answer.ends;
        written = true;
      }
    }
    make_disjoint(mask.trained);
    return mask;
  }

 private:
  // Where a turn holds several answers, the bytes from where a later one begins are its own.
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

  // Tokens of the template that end turns, as this conversation shows: those between an answer and the header of the
  // next message (which is what stood before the first message of that role), and those that stand first between
  // messages, before an answer and behind one, but not before the first message.
  void learn_ends() {
    std::map<std::string_view, std::string_view> headers;  // what stands before the first message of each role
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
      if (is_assistant(i)) before_answers.add(std::string(token));
      if (!is_assistant(i - 1) || token.empty()) continue;
      behind_answers.add(std::string(token));
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

  // What the template writes to ask for message i's answer, counted from where the turn begins. It depends on the
  // message before, so one answer behind each role is rendered; where the template refuses that, a few more.
  const std::string& prompt_of(size_t i) {
    if (i == 0) return prompt_of_all();
    const auto known = prompts_.find(inputs_.roles[i - 1]);
    if (known != prompts_.end()) return known->second;
    const Place* const turn = layout_.main_place(i);
    if (turn && prompts_rendered_ < kMaxPrompts) {
      ++prompts_rendered_;
      if (auto prompt = prompt_before(i, turn->bytes)) {
        return prompts_.emplace(inputs_.roles[i - 1], std::move(*prompt)).first->second;
      }
    }
    return prompt_of_all();
  }

  std::optional<std::string> prompt_before(size_t i, Interval turn) const {
    const auto prefix = inputs_.render({.count = i, .generation_prompt = true});
    if (!prefix) return std::nullopt;
    const std::string_view bytes = prefix->bytes();
    if (bytes.size() >= turn.begin && bytes_.starts_with(bytes)) return std::string(bytes.substr(turn.begin));
    const Layout layout(*prefix, inputs_.roles, inputs_.special_tokens);
    for (size_t j = i; j-- > 0;) {
      // The last turn that both wrote, up to this one: what the prefix has beyond it.
      const Place* const here = layout_.main_place(j);
      const Place* const there = layout.main_place(j);
      if (!here || !there || here->bytes.begin >= turn.begin) continue;
      const std::string_view before = bytes_.substr(here->bytes.begin, turn.begin - here->bytes.begin);
      const std::string_view tail = bytes.substr(there->bytes.begin);
      return std::string(tail.starts_with(before) ? tail.substr(before.size()) : bytes.substr(there->bytes.end));
    }
    return std::nullopt;
  }

  // What the generation prompt adds to the whole conversation.
  const std::string& prompt_of_all() {
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
      prompt_of_all_ = with ? with->bytes().substr(begin) : std::string();
    }
    return *prompt_of_all_;
  }

  // What the template writes in message i's turn before a content that is all the message has.
  std::optional<std::string_view> plain_header(size_t i) {
    if (!plain_) {
      plain_ = inputs_.render({.count = inputs_.roles.size(), .plain = true}).value_or(Text());
      plain_layout_.emplace(*plain_, inputs_.roles, inputs_.special_tokens);
    }
    const Place* const place = plain_layout_->main_place(i);
    if (!place || !place->data) return std::nullopt;
    return std::string_view(plain_->bytes()).substr(place->bytes.begin, place->data->begin - place->bytes.begin);
  }

  size_t answer_begin(size_t i, const Place& place, bool main) {
    const std::string_view written = bytes_.substr(place.bytes.begin, place.bytes.size());
    const size_t most = place.data ? place.data->begin - place.bytes.begin : written.size();
    const std::string_view header = written.substr(0, most);  // and what the answer begins with
    const std::string& prompt = prompt_of(i);
    size_t size = 0;
    if (!prompt.empty() && written.starts_with(prompt)) {
      size = prompt.size();
    } else if (!main) {
      size = most;
    } else {
      const auto plain = plain_header(i);
      // Without a generation prompt the template may still begin the answer, with a space say.
      const bool is_header = plain && !(prompt.empty() && is_blank(*plain));
      size = std::max(whole_part(header, prompt), is_header ? whole_part(header, *plain) : 0);
      if (size == 0 && !plain && place.data && !prompt.empty()) size = most;
    }
    return after_role(place.bytes.begin + size, place.data, static_cast<int32_t>(i));
  }

  // How much of the header the text begins with; where they part, up to the last line or special token.
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

  // A role that the template wrote into the turn is header, whatever the prompt: the answer begins with data after it.
  size_t after_role(size_t begin, const std::optional<Interval>& data, int32_t message) const {
    if (!data || data->begin <= begin) return begin;
    for (auto run = run_at(begin); run != text_.runs().end() && begin_of(run) < data->begin; ++run) {
      if (run->origin.role && run->origin.message == message) return data->begin;
    }
    return begin;
  }

  using Run = std::vector<Text::Run>::const_iterator;
  Run run_at(size_t byte) const {
    return std::upper_bound(text_.runs().begin(), text_.runs().end(), byte,
                            [](size_t at, const Text::Run& run) { return at < run.end; });
  }
  size_t begin_of(Run run) const { return run == text_.runs().begin() ? 0 : std::prev(run)->end; }

  struct Answer {
    size_t end = 0;
    bool ends = false;  // by a token, or by any text where no tokens are known
  };
  Answer answer_end(const Place& place, size_t begin, std::string_view prompt) const {
    const size_t last = std::max(begin, place.data ? place.data->end : begin);
    const auto token_end = [&](size_t stop) { return end_of_turn(bytes_.substr(0, stop), last, prompt); };
    if (const auto end = token_end(place.bytes.end)) return {*end, true};
    Run run = run_at(place.bytes.end);  // the turn may be ended by text outside its iteration
    while (run != text_.runs().end() && run->origin.turn < 0 && run->origin.message < 0) ++run;
    const size_t after = std::max(begin_of(run), place.bytes.end);
    if (const auto end = token_end(after)) return {*end, true};
    const size_t visible = bytes_.substr(0, place.bytes.end).find_last_not_of(kSpaces);
    const size_t end = std::max(last, visible == std::string_view::npos ? 0 : visible + 1);
    const int32_t next = run == text_.runs().end() ? -1 : run->origin.turn;  // or by the next message's turn
    while (run != text_.runs().end() && run->origin.message < 0 && run->origin.turn == next) ++run;
    if (const auto later = end_in_next(end, begin_of(run))) return {*later, true};
    return {end, end > last && inputs_.special_tokens.empty()};
  }

  // The end of the first end token, or else of the last special token that is not of the next prompt.
  std::optional<size_t> end_of_turn(std::string_view text, size_t from, std::string_view prompt) const {
    std::optional<size_t> end;
    bool header = false;  // of what follows
    for (auto token = inputs_.special_tokens.next(text, from); token;
         token = inputs_.special_tokens.next(text, token.end())) {
      if (inputs_.end_tokens.contains(token.token)) return token.end();
      header = header || (prompt.find(token.token) != std::string_view::npos && !ends_.contains(token.token));
      if (!header) end = token.end();
    }
    return end;
  }

  // Of the end tokens that stand at `from` with nothing but white space before and between them.
  std::optional<size_t> end_in_next(size_t from, size_t stop) const {
    const std::string_view text = bytes_.substr(0, stop);
    std::optional<size_t> end;
    for (size_t at = skip_spaces(text, from); at < stop; at = skip_spaces(text, *end)) {
      const std::string_view token = ends_.at(text, at);
      if (token.empty()) break;
      end = at + token.size();
      if (inputs_.end_tokens.contains(token)) break;
    }
    return end;
  }

  const MaskInputs& inputs_;
  const Text& text_;
  std::string_view bytes_;
  SpecialTokens ends_;  // the end tokens, and what this conversation shows to be ones
  Layout layout_;
  std::map<std::string, std::string> prompts_;  // by the role of the message before
  int prompts_rendered_ = 0;
  std::optional<std::string> prompt_of_all_;
  std::optional<Text> plain_;
  std::optional<Layout> plain_layout_;
};

}  // namespace

ChatMask find_trained(const MaskInputs& inputs) { return Masker(inputs).run(); }

ChatMask find_generated(const jinja::Text& text, const SpecialTokens& special_tokens) {
  ChatMask mask;
  size_t begin = 0, data_end = 0;  // of the last span, where the message's data ends
  for (const Text::Run& run : text.runs()) {
    const Interval bytes{begin, run.end};
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
