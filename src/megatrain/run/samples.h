// What a model in training answers to a few prompts: RUN/samples.jsonl and a line of the log each.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/generate/answer.h"
#include "megatrain/train/trainer.h"

namespace megatrain {

class Samples {
 public:
  // Prompts are a user's messages where the model has a chat template, else texts. Throws Error(bad_input) for one that
  // leaves no room in the model's context. `text` outlives this.
  Samples(std::string path, const TrainConfig::Sample& sample, const ModelConfig& model, const ModelText& text);

  int64_t longest_prompt() const;  // tokens; Session::count_prompts() has to know them

  // Answers greedily with the weights as they are after `step`, in memory that the trainer lends and, where the device
  // has more free, in that. Answers that the file has are not written twice. Writes nothing once `stop` is not 0.
  void write(int64_t step, Machine& machine, Trainer& trainer, const volatile std::sig_atomic_t* stop);

  // Whether the file has all answers of a step.
  bool has(int64_t step) const { return missing(step).empty(); }

 private:
  std::vector<size_t> missing(int64_t step) const;  // prompts without an answer of that step
  std::vector<Answer> answers(Machine& machine, Trainer& trainer, int64_t more_bytes,
                              const volatile std::sig_atomic_t* stop) const;

  std::string path_;
  TrainConfig::Sample sample_;
  ModelConfig model_;
  const ModelText& text_;
  std::vector<Prompt> prompts_;
  double seconds_ = 0;  // that the last ones took
};

}  // namespace megatrain
