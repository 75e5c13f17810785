// Where a rendered conversation holds each of its messages.
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

  // What a message's turn wrote without a gap, or a run of its data outside of its turn.
  struct Place {
    Bytes bytes;
    size_t from = 0;            // where the text before the data begins that no other message wrote
    std::optional<Bytes> data;  // from the first byte of the message's data to the last
    size_t data_size = 0;
    bool own = false;  // its turn wrote it
  };

  ChatLayout(const jinja::Text& text, const std::vector<std::string>& roles, const SpecialTokens& tokens);

  const std::vector<Place>& places(size_t message) const { return places_[message]; }
  const Place* main_place(size_t message) const;  // where most of the message's data stands

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
  size_t written_end_ = 0;  // of the last run that a message's turn wrote or that is its data
};

}  // namespace megatrain
