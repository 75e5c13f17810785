#include "megatrain/chat/chat_layout.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace megatrain {

using jinja::Origin;
using jinja::Text;

ChatLayout::ChatLayout(const Text& text, const std::vector<std::string>& roles, const SpecialTokens& tokens)
    : text_(text), tokens_(tokens), roles_(roles), places_(roles.size()) {
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    add({begin, run.end}, run.origin);
    begin = run.end;
  }
}

const ChatLayout::Place* ChatLayout::main_place(size_t message) const {
  const auto& places = places_[message];
  const auto found = std::max_element(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::pair(a.own, a.data_size) < std::pair(b.own, b.data_size);
  });
  return found == places.end() ? nullptr : &*found;
}

void ChatLayout::add(Bytes bytes, const Origin& origin) {
  const bool data = is_message(origin.message) && !origin.role;
  if (is_message(origin.turn)) {
    auto& places = places_[static_cast<size_t>(origin.turn)];
    if (places.empty() || !places.back().own || places.back().bytes.end != bytes.begin) {
      places.push_back({.bytes = bytes, .from = bytes.begin, .own = true});
    }
    places.back().bytes.end = bytes.end;
    if (data && origin.message == origin.turn) add_data(places.back(), bytes);
  }
  const bool quoted = is_message(origin.turn) && roles_[static_cast<size_t>(origin.turn)] != "assistant";
  if (data && origin.message != origin.turn && !quoted) {
    auto& places = places_[static_cast<size_t>(origin.message)];
    if (places.empty() || places.back().own || !continues(places.back(), bytes.begin, origin.message)) {
      places.push_back({.bytes = bytes, .from = written_end_});
    }
    places.back().bytes.end = bytes.end;
    add_data(places.back(), bytes);
  }
  if (is_message(origin.message)) last_written_ = origin.message;
  if (data || is_message(origin.turn)) written_end_ = bytes.end;
}

void ChatLayout::add_data(Place& place, Bytes bytes) {
  if (!place.data) place.data = bytes;
  place.data->end = bytes.end;
  place.data_size += bytes.size();
}

// True if only a few words of the template are in between.
bool ChatLayout::continues(const Place& place, size_t begin, int32_t message) const {
  const std::string_view between = std::string_view(text_.bytes()).substr(0, begin).substr(place.bytes.end);
  return last_written_ == message && between.find('\n') == std::string_view::npos && !tokens_.next(between, 0);
}

}  // namespace megatrain
