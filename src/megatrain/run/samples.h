// Sample answers of a model in training to a few prompts, written to RUN/samples.jsonl and the log.
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
  // Prompts are user messages if the model has a chat template, otherwise plain text. Throws Error(bad_input) for a
  // prompt that leaves no room in the model's context. `text` must outlive this object.
  Samples(std::string path, const TrainConfig::Sample& sample, const AdapterRules& adapter, const ModelConfig& model,
          const ModelText& text);

  int64_t longest_prompt() const;  // in tokens; Session::count_prompts() needs it

  // Answers greedily with the weights after `step`, in memory that the trainer lends plus any that is free on the
  // device. Answers that the file already has are not written twice. Writes nothing once `stop` is not 0.
  void write(int64_t step, Machine& machine, Trainer& trainer, const volatile std::sig_atomic_t* stop);

  // Whether the file has all answers of a step.
  bool has(int64_t step) const { return missing(step).empty(); }

 private:
  std::vector<size_t> missing(int64_t step) const;  // prompts not yet answered at that step
  std::vector<Answer> answers(Machine& machine, Trainer& trainer, int64_t more_bytes,
                              const volatile std::sig_atomic_t* stop) const;

  std::string path_;
  TrainConfig::Sample sample_;
  AdapterRules adapter_;
  ModelConfig model_;
  const ModelText& text_;
  std::vector<Prompt> prompts_;
  double seconds_ = 0;  // that the last call took
};

}  // namespace megatrain
