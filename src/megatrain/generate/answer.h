// Turns prompts into answers as text.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megatrain/chat/model_text.h"
#include "megatrain/generate/generator.h"

namespace megatrain {

struct Prompt {
  std::vector<int32_t> ids;  // the encoded text with special tokens, or ModelText::encode_chat
  bool chat = false;         // the end of an assistant turn also ends the answer
  int64_t max_tokens = 0;
};

struct Answer {
  std::string text;          // without special tokens, cut before a stop string
  std::vector<int32_t> ids;  // all generated tokens
  Finish finish = Finish::length;
};

struct AnswerOptions {
  Sampling sampling;
  std::vector<std::string> stops;  // none may be empty
  // called with text once it is final; may be empty
  std::function<void(size_t prompt, const std::string& text)> on_text;
  std::function<void(size_t prompt, const Answer& answer)> on_answer;  // called in the order of the prompts
  const volatile std::sig_atomic_t* stop = nullptr;  // once it is not 0, every answer ends where it is
  bool reuse = false;                                // GenerationRequest::reuse
};

// The context a generator needs for these prompts and their answers, at most `limit` tokens.
int64_t context_of(const std::vector<Prompt>& prompts, int64_t limit);

// Returns one answer per prompt; prompt i is sequence i of the sampling.
std::vector<Answer> answer(Generator& generator, const ModelText& text, const std::vector<Prompt>& prompts,
                           const AnswerOptions& options);

}  // namespace megatrain
