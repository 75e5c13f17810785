// Prompts to answers in text.
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
  std::vector<int32_t> ids;  // the text with special tokens added, or of ModelText::encode_chat
  bool chat = false;         // the end of an assistant's turn ends the answer too
  int64_t max_tokens = 0;
};

struct Answer {
  std::string text;          // special tokens left out, cut before a stop string
  std::vector<int32_t> ids;  // all that were generated
  Finish finish = Finish::length;
};

struct AnswerOptions {
  Sampling sampling;
  std::vector<std::string> stops;                                       // none is empty
  std::function<void(size_t prompt, const std::string& text)> on_text;  // as it becomes certain; may be empty text
  std::function<void(size_t prompt, const Answer& answer)> on_answer;   // in order of the prompts
  const volatile std::sig_atomic_t* stop = nullptr;  // once it is not 0, every answer ends where it is
  bool reuse = false;                                // as GenerationRequest has it
};

// The context a generator needs for them: of the longest prompt with its answer, at most `limit` tokens.
int64_t context_of(const std::vector<Prompt>& prompts, int64_t limit);

// One for each prompt; prompt i is sequence i of the sampling.
std::vector<Answer> answer(Generator& generator, const ModelText& text, const std::vector<Prompt>& prompts,
                           const AnswerOptions& options);

}  // namespace megatrain
