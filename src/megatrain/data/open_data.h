// From a configuration's data keys to the batches of a run.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <optional>

#include "megatrain/chat/model_text.h"
#include "megatrain/config/config.h"
#include "megatrain/data/sample_data.h"
#include "megatrain/dataset/dataset.h"
#include "megatrain/model/model_source.h"

namespace megatrain {

struct RunData {
  std::unique_ptr<BatchSource> train, eval;  // eval: nothing where there is no data for it
  std::optional<ModelText> text;             // of datasets
  // The same objects, where they are samples of datasets.
  SampleData* train_samples = nullptr;
  SampleData* eval_samples = nullptr;
  int64_t bad = 0;       // samples left out
  bool stopped = false;  // by the signal, while tokenising; nothing else is filled then
};

// Told of the bytes of files that are about to be tokenised into the cache; throws where there is no room for that.
using CacheRoom = std::function<void(int64_t bytes)>;

// Tokenises what is not yet in the cache, with a line of the log now and then. Throws Error(bad_input).
RunData open_data(const TrainConfig& config, const ModelSource& model, const volatile std::sig_atomic_t* stop = nullptr,
                  const CacheRoom& room = {});

// `config.data.eval` alone, in one pass and the order of the files.
std::unique_ptr<BatchSource> open_evaluation(const TrainConfig& config, const ModelSource& model);

// Of checkpoint.every and eval.every: `part` above 0 is a part of the run, rounded up, or with 1 an epoch.
int64_t steps_between(int64_t every, double part, int64_t run_steps, int64_t epoch_steps);

// Steps that steps, epochs or tokens come to; 0: none of them is given.
int64_t steps_of_run(const TrainConfig& config, const BatchSource& source);

// The datasets of data.train, or of data.eval, tokenised; nothing when it was stopped. `bad` counts the samples left
// out.
std::optional<std::vector<SampleSet>> open_sets(const TrainConfig& config, DatasetUse use, const ModelText& text,
                                                const volatile std::sig_atomic_t* stop, int64_t& bad,
                                                const CacheRoom& room = {});

// data.tokenizer, else the model's directory.
ModelText open_text(const TrainConfig& config, const std::string& model_directory);

}  // namespace megatrain
