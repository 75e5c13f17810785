// The text of an answer as its tokens arrive: complete characters only, and nothing that may turn out to be the
// beginning of a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/tokenizer/tokenizer.h"

namespace megatrain {

// Passes text through up to, but not including, the first occurrence of a stop string.
class StopText {
 public:
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  std::string add(std::string_view text);  // returns the text that is final now
  std::string finish();                    // returns what was held back
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;  // may begin a stop string
  bool stopped_ = false;
};

class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops, bool skip_special_tokens = true)
      : decoder_(tokenizer, skip_special_tokens), stop_(std::move(stops)) {}

  std::string add(int32_t id) { return keep(stop_.add(decoder_.add(id))); }
  std::string finish() { return keep(stop_.add(decoder_.finish()) + stop_.finish()); }
  bool stopped() const { return stop_.stopped(); }
  const std::string& text() const { return text_; }  // all final text so far

 private:
  std::string keep(std::string text) {
    text_ += text;
    return text;
  }

  StreamDecoder decoder_;
  StopText stop_;
  std::string text_;
};

}  // namespace megatrain
