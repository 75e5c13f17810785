#include "megatrain/generate/answer.h"

#include <algorithm>

#include "megatrain/generate/answer_text.h"

namespace megatrain {

namespace {

// Answers prompts [begin, end), which all have the same end tokens.
void answer_some(Generator& generator, const ModelText& text, const std::vector<Prompt>& prompts, size_t begin,
                 size_t end, const AnswerOptions& options, std::vector<Answer>& answers) {
  std::vector<GenerationRequest> requests;
  std::vector<AnswerText> texts;
  for (size_t i = begin; i < end; ++i) {
    requests.push_back({.prompt = prompts[i].ids,
                        .max_tokens = prompts[i].max_tokens,
                        .sampling = options.sampling,
                        .sequence = static_cast<uint64_t>(i),
                        .reuse = options.reuse});
    texts.emplace_back(text.tokenizer, options.stops);
  }
  const auto tell = [&](size_t request, const std::string& more) {
    if (options.on_text) options.on_text(begin + request, more);
  };
  const std::vector<Generation> generations = generator.generate(
      requests, prompts[begin].chat ? text.chat_end_ids : text.end_ids,
      [&](size_t request, int32_t id) {
        tell(request, texts[request].add(id));
        return !texts[request].stopped();
      },
      options.stop);
  for (size_t i = 0; i < generations.size(); ++i) {
    tell(i, texts[i].finish());
    answers.push_back({.text = texts[i].text(),
                       .ids = generations[i].ids,
                       .finish = texts[i].stopped() ? Finish::stop : generations[i].finish});
    if (options.on_answer) options.on_answer(begin + i, answers.back());
  }
}

}  // namespace

int64_t context_of(const std::vector<Prompt>& prompts, int64_t limit) {
  int64_t context = 1;
  for (const Prompt& prompt : prompts)
    context = std::max(context, static_cast<int64_t>(prompt.ids.size()) + std::min(prompt.max_tokens, limit));
  return std::min(context, limit);
}

std::vector<Answer> answer(Generator& generator, const ModelText& text, const std::vector<Prompt>& prompts,
                           const AnswerOptions& options) {
  constexpr size_t kTogether = 512;  // answers of a long list appear while it runs
  std::vector<Answer> answers;
  for (size_t begin = 0; begin < prompts.size();) {
    size_t end = begin;
    while (end < prompts.size() && end - begin < kTogether && prompts[end].chat == prompts[begin].chat) ++end;
    answer_some(generator, text, prompts, begin, end, options, answers);
    begin = end;
  }
  return answers;
}

}  // namespace megatrain
