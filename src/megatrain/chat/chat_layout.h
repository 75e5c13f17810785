// Where each message appears in a rendered conversation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/chat/jinja/text.h"
#include "megatrain/tokenizer/special_tokens.h"

namespace megatrain {

class ChatLayout {
 public:
  struct Bytes {
    size_t begin = 0, end = 0;
    size_t size() const { return end - begin; }
  };

  // A contiguous part that a message's turn wrote, or a run of the message's data outside its turn.
  struct Place {
    Bytes bytes;
    size_t from = 0;            // start of the text before the data that no other message wrote
    std::optional<Bytes> data;  // from the first to the last byte of the message's data
    size_t data_size = 0;
    bool own = false;  // written by the message's own turn
  };

  ChatLayout(const jinja::Text& text, const std::vector<std::string>& roles, const SpecialTokens& tokens);

  const std::vector<Place>& places(size_t message) const { return places_[message]; }
  // The place with most of the message's data; places that its own turn wrote come first. Null if there is none.
  const Place* main_place(size_t message) const;

 private:
  bool is_message(int32_t index) const { return index >= 0 && static_cast<size_t>(index) < roles_.size(); }
  void add(Bytes bytes, const jinja::Origin& origin);
  static void add_data(Place& place, Bytes bytes);
  bool continues(const Place& place, size_t begin, int32_t message) const;

  const jinja::Text& text_;
  const SpecialTokens& tokens_;
  const std::vector<std::string>& roles_;
  std::vector<std::vector<Place>> places_;
  int32_t last_written_ = -1;
  size_t written_end_ = 0;  // end of the last run that is a message's data or that a turn wrote
};

}  // namespace megatrain
