#include "megatrain/generate/answer_text.h"

#include <algorithm>
#include <utility>

namespace megatrain {

std::string StopText::add(std::string_view text) {
  if (stopped_) return "";
  held_ += text;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    stopped_ = true;
    return std::exchange(held_, "").substr(0, end);
  }
  size_t keep = 0;  // the longest suffix of the text that begins a stop string
  for (const std::string& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, held_.size()); size > keep; --size) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, size))) keep = size;
    }
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopText::finish() { return stopped_ ? "" : std::exchange(held_, ""); }

}  // namespace megatrain
