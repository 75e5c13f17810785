#include "megatrain/text/chat_mask.h"

#include <algorithm>
#include <string_view>

namespace megatrain {
namespace {

using jinja::Origin;
using jinja::Text;

struct Interval {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

bool is_data(const Origin& origin, int32_t message) { return origin.message == message && !origin.role; }

// Calls visit(begin, end, origin) for the runs inside the interval.
template <class Visit>
void each_run(const Text& text, Interval within, Visit visit) {
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    const size_t first = std::max(begin, within.begin), last = std::min(run.end, within.end);
    if (first < last) visit(first, last, run.origin);
    begin = run.end;
  }
}

// First and last byte of the message's data inside; nothing where there is none.
std::optional<Interval> data_within(const Text& text, Interval within, int32_t message) {
  std::optional<Interval> found;
  each_run(text, within, [&](size_t begin, size_t end, const Origin& origin) {
    if (!is_data(origin, message)) return;
    if (!found) found = Interval{begin, end};
    found->end = end;
  });
  return found;
}

// What the message's turn wrote. A turn that wrote in several places is where most of its data stands.
std::optional<Interval> turn_of(const Text& text, int32_t message) {
  std::vector<Interval> places;
  each_run(text, {0, text.size()}, [&](size_t begin, size_t end, const Origin& origin) {
    if (origin.turn != message) return;
    if (!places.empty() && places.back().end == begin) {
      places.back().end = end;
    } else {
      places.push_back({begin, end});
    }
  });
  if (places.empty()) return data_within(text, {0, text.size()}, message);
  const auto data_size = [&](const Interval& place) {
    size_t size = 0;
    each_run(text, place, [&](size_t begin, size_t end, const Origin& origin) {
      if (is_data(origin, message)) size += end - begin;
    });
    return size;
  };
  return *std::max_element(places.begin(), places.end(),
                           [&](const Interval& a, const Interval& b) { return data_size(a) < data_size(b); });
}

// The end of the first special token at or after `from`, and its length; the longest where several begin together.
struct Found {
  size_t begin = std::string::npos;
  std::string_view token;
};
Found next_special(std::string_view text, size_t from, const std::vector<std::string>& tokens) {
  Found found;
  for (const std::string& token : tokens) {
    if (token.empty()) continue;
    const size_t at = text.find(token, from);
    if (at < found.begin || (at != std::string::npos && at == found.begin && token.size() > found.token.size())) {
      found = {at, token};
    }
  }
  return found;
}

class Masker {
 public:
  explicit Masker(const MaskInputs& inputs) : inputs_(inputs), text_(inputs.text), bytes_(inputs.text.bytes()) {}

  std::vector<TrainedSpan> run() {
    std::vector<TrainedSpan> spans;
    for (size_t i = 0; i < inputs_.is_assistant.size(); ++i) {
      if (!inputs_.is_assistant[i]) continue;
      const int32_t message = static_cast<int32_t>(i);
      const auto turn = turn_of(text_, message);
      if (!turn) continue;
      const std::string prompt = prompt_before(i, *turn);
      const auto data = data_within(text_, *turn, message);
      size_t begin = answer_begin(*turn, data, prompt);
      begin = after_role(begin, data, message);
      const size_t end = answer_end(*turn, data, begin, prompt);
      if (begin < end) spans.push_back({begin, end, message});
    }
    std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    return spans;
  }

 private:
  // What the template writes to ask for message i's answer, counted from where the turn begins.
  std::string prompt_before(size_t i, Interval turn) {
    if (i > 0) {
      if (const auto prefix = inputs_.render(i, true)) {
        const std::string& bytes = prefix->bytes();
        if (bytes.size() >= turn.begin && bytes_.starts_with(bytes)) return bytes.substr(turn.begin);
        for (size_t j = i; j-- > 0;) {
          // The last turn that both wrote, up to this one: what the prefix has beyond it.
          const auto here = turn_of(text_, static_cast<int32_t>(j));
          const auto there = turn_of(*prefix, static_cast<int32_t>(j));
          if (!here || !there || here->begin >= turn.begin) continue;
          const std::string_view before = bytes_.substr(here->begin, turn.begin - here->begin);
          const std::string_view tail = std::string_view(bytes).substr(there->begin);
          if (tail.starts_with(before)) return std::string(tail.substr(before.size()));
          if (there->end <= bytes.size()) return bytes.substr(there->end);
          break;
        }
      }
    }
    return prompt_of_all();
  }

  // What the generation prompt adds to the whole conversation.
  std::string prompt_of_all() {
    if (!prompt_of_all_) {
      const auto with = inputs_.render(inputs_.is_assistant.size(), true);
      const auto without = inputs_.render(inputs_.is_assistant.size(), false);
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

  size_t answer_begin(Interval turn, const std::optional<Interval>& data, std::string_view prompt) const {
    const std::string_view written = bytes_.substr(turn.begin, turn.size());
    if (written.starts_with(prompt)) return turn.begin + prompt.size();
    // Only a part of the prompt stands here (no thinking, say): the part that ends whole.
    const size_t most = data ? data->begin - turn.begin : turn.size();
    size_t common = 0;
    while (common < std::min({most, prompt.size(), written.size()}) && written[common] == prompt[common]) ++common;
    if (data && common == most) return turn.begin + common;
    const size_t line = prompt.substr(0, common).rfind('\n');
    size_t whole = line == std::string_view::npos ? 0 : line + 1;
    for (Found token = next_special(prompt, 0, inputs_.special_tokens); token.begin != std::string::npos;
         token = next_special(prompt, token.begin + token.token.size(), inputs_.special_tokens)) {
      const size_t end = token.begin + token.token.size();
      if (end <= common) whole = std::max(whole, end);
    }
    return turn.begin + whole;
  }

  // A role that the template wrote into the turn is header, whatever the prompt: the answer begins with data after it.
  size_t after_role(size_t begin, const std::optional<Interval>& data, int32_t message) const {
    if (!data || data->begin <= begin) return begin;
    bool has_role = false;
    each_run(text_, {begin, data->begin}, [&](size_t, size_t, const Origin& origin) {
      has_role = has_role || (origin.role && origin.message == message);
    });
    return has_role ? data->begin : begin;
  }

  size_t answer_end(Interval turn, const std::optional<Interval>& data, size_t begin, std::string_view prompt) const {
    const size_t last = std::max(begin, data ? data->end : begin);
    const auto token_end = [&](size_t stop) { return end_of_turn(bytes_.substr(0, stop), last, prompt); };
    if (const auto end = token_end(turn.end)) return *end;
    size_t after = turn.end;  // the turn may be ended by text outside its iteration
    each_run(text_, {turn.end, text_.size()}, [&](size_t first, size_t stop, const Origin& origin) {
      if (first == after && origin.turn < 0 && origin.message < 0) after = stop;
    });
    if (const auto end = token_end(after)) return *end;
    const size_t visible = bytes_.substr(0, turn.end).find_last_not_of(" \t\r\n");
    return std::max(last, visible == std::string_view::npos ? 0 : visible + 1);
  }

  // The end of eos, or else of the last special token that is not of the next prompt.
  std::optional<size_t> end_of_turn(std::string_view text, size_t from, std::string_view prompt) const {
    if (!inputs_.eos_token.empty()) {
      const size_t eos = text.find(inputs_.eos_token, from);
      if (eos != std::string_view::npos) return eos + inputs_.eos_token.size();
    }
    std::optional<size_t> end;
    for (Found token = next_special(text, from, inputs_.special_tokens); token.begin != std::string::npos;
         token = next_special(text, *end, inputs_.special_tokens)) {
      if (prompt.find(token.token) != std::string_view::npos) break;
      end = token.begin + token.token.size();
    }
    return end;
  }

  const MaskInputs& inputs_;
  const Text& text_;
  std::string_view bytes_;
  std::optional<std::string> prompt_of_all_;
};

}  // namespace

std::vector<TrainedSpan> find_trained(const MaskInputs& inputs) { return Masker(inputs).run(); }

std::vector<TrainedSpan> find_generated(const jinja::Text& text) {
  std::vector<TrainedSpan> spans;
  each_run(text, {0, text.size()}, [&](size_t begin, size_t end, const Origin& origin) {
    if (!origin.generation) return;
    if (!spans.empty() && spans.back().end == begin && spans.back().message == origin.turn) {
      spans.back().end = end;
    } else {
      spans.push_back({begin, end, origin.turn});
    }
  });
  return spans;
}

}  // namespace megatrain
