// Opens the datasets of a configuration and makes the batches of a run.
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
  std::unique_ptr<BatchSource> train, eval;  // eval: null without evaluation data
  std::optional<ModelText> text;             // for datasets
  // The same objects, if they are samples of datasets.
  SampleData* train_samples = nullptr;
  SampleData* eval_samples = nullptr;
  int64_t bad = 0;       // samples left out
  bool stopped = false;  // by the signal, while tokenizing; nothing else is set then
};

// Called with the bytes of files that are about to be tokenized into the cache; throws if there is not enough space.
using CacheRoom = std::function<void(int64_t bytes)>;

// Tokenizes what is not in the cache yet, with a log line now and then. Throws Error(bad_input).
RunData open_data(const TrainConfig& config, const ModelSource& model, const volatile std::sig_atomic_t* stop = nullptr,
                  const CacheRoom& room = {});

// Opens only `config.data.eval`, for one pass in the order of the files.
std::unique_ptr<BatchSource> open_evaluation(const TrainConfig& config, const ModelSource& model);

// For checkpoint.every and eval.every. A `part` above 0 is a fraction of the run, rounded up; 1 means an epoch.
int64_t steps_between(int64_t every, double part, int64_t run_steps, int64_t epoch_steps);

// The number of steps from config's steps, epochs or tokens; 0 if none of them is given.
int64_t steps_of_run(const TrainConfig& config, const BatchSource& source);

// The datasets of data.train or data.eval, tokenized; empty if it was stopped. `bad` counts the samples left out.
std::optional<std::vector<SampleSet>> open_sets(const TrainConfig& config, DatasetUse use, const ModelText& text,
                                                const volatile std::sig_atomic_t* stop, int64_t& bad,
                                                const CacheRoom& room = {});

// Opens data.tokenizer if given, otherwise the model's directory.
ModelText open_text(const TrainConfig& config, const std::string& model_directory);

}  // namespace megatrain
