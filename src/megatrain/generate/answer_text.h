// The text of an answer as its tokens come: whole characters only, and nothing that may yet turn out to be the
// beginning of a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/tokenizer/tokenizer.h"

namespace megatrain {

// Passes text on up to, and without, the first of some strings.
class StopText {
 public:
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  std::string add(std::string_view text);  // what is certain now
  std::string finish();                    // what was held back
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;  // may be the beginning of a stop string
  bool stopped_ = false;
};

class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops)
      : decoder_(tokenizer, true), stop_(std::move(stops)) {}

  std::string add(int32_t id) { return keep(stop_.add(decoder_.add(id))); }
  std::string finish() { return keep(stop_.add(decoder_.finish()) + stop_.finish()); }
  bool stopped() const { return stop_.stopped(); }
  const std::string& text() const { return text_; }  // all that was certain so far

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
