#include "megatrain/tokenizer/special_tokens.h"

#include <algorithm>
#include <functional>

namespace megatrain {

void SpecialTokens::add(const std::string& token) {
  if (token.empty() || !known_.insert(token).second) return;
  all_.push_back(token);
  auto& lengths = lengths_[static_cast<unsigned char>(token[0])];
  const auto place = std::lower_bound(lengths.begin(), lengths.end(), token.size(), std::greater<>());
  if (place == lengths.end() || *place != token.size()) lengths.insert(place, token.size());
}

std::string_view SpecialTokens::at(std::string_view text, size_t byte) const {
  if (byte >= text.size()) return {};
  for (const size_t length : lengths_[static_cast<unsigned char>(text[byte])]) {
    const std::string_view part = text.substr(byte, length);
    if (part.size() == length && contains(part)) return part;
  }
  return {};
}

SpecialTokens::Found SpecialTokens::next(std::string_view text, size_t from) const {
  for (size_t byte = from; byte < text.size(); ++byte) {
    const std::string_view token = at(text, byte);
    if (!token.empty()) return {byte, token};
  }
  return {};
}

}  // namespace megatrain
