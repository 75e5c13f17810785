// `megatrain prepare`: tokenise what a configuration trains on, say what it came to, and write it out when asked.
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/math.h"
#include "megatrain/base/work.h"
#include "megatrain/cli/signal_watch.h"
#include "megatrain/cli/words.h"
#include "megatrain/io/file.h"
#include "megatrain/ops/cross_entropy.h"
#include "megatrain/train/open_data.h"

namespace megatrain {

namespace {

using nlohmann::ordered_json;

ordered_json to_json(const SampleData* data, int64_t seq_len) {
  if (!data) return nullptr;
  const SampleCounts& counts = data->counts();
  return {{"samples", counts.samples},     {"tokens", counts.tokens},          {"trained_tokens", counts.trained},
          {"longest", counts.longest},     {"truncated", counts.truncated},    {"left_out", counts.dropped},
          {"sequences", counts.sequences}, {"filled", counts.filled(seq_len)}, {"fingerprint", data->fingerprint()}};
}

// One file of a prepared dataset, in pieces.
template <class T>
class Column {
 public:
  explicit Column(const std::string& path) : file_(File::create(path)) {}
  void append(const std::vector<T>& values) {
    const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(T));
    file_.write_at(at_, values.data(), bytes);
    at_ += bytes;
  }
  void finish() { file_.sync(); }

 private:
  File file_;
  int64_t at_ = 0;
};

// The sequences of `steps` steps in the order of the run, as data.tokens, data.labels and data.documents read them.
void write_out(const std::string& directory, BatchSource& source, int64_t steps) {
  std::error_code code;
  std::filesystem::create_directories(directory, code);
  if (code) fail_io(fmt::format("could not create {}: {}", directory, code.message()));
  Column<uint32_t> tokens(directory + "/tokens.bin");
  Column<int32_t> labels(directory + "/labels.bin");
  Column<uint64_t> documents(directory + "/documents.bin");
  int64_t base = 0;
  Batch batch;
  for (int64_t step = 0; step < steps; ++step) {
    source.load(step, batch);
    for (const MicroBatch& micro : batch.micro_batches) {
      std::vector<int32_t> unshifted(micro.tokens.size(), kIgnoreLabel);
      for (size_t t = 0; t + 1 < micro.tokens.size(); ++t) unshifted[t + 1] = micro.labels[t];
      std::vector<uint64_t> starts;
      for (size_t d = 0; d + 1 < micro.document_begin.size(); ++d)
        starts.push_back(static_cast<uint64_t>(base + micro.document_begin[d]));
      tokens.append({micro.tokens.begin(), micro.tokens.end()});
      labels.append(unshifted);
      documents.append(starts);
      base += static_cast<int64_t>(micro.tokens.size());
    }
  }
  tokens.finish();
  labels.finish();
  documents.finish();
  log_info(
      fmt::format("wrote {} tokens: data: {{tokens: {}/tokens.bin, dtype: uint32, labels: {}/labels.bin, documents: "
                  "{}/documents.bin}}",
                  base, directory, directory, directory));
}

}  // namespace

int verb_prepare(const Words& words) {
  const Arguments arguments(words, {"--out"}, {"--json"}, "prepare");
  const TrainConfig config = load_config(arguments.one("CONFIG.yaml"), arguments.overrides(), {.steps = false});
  if (config.data.train.empty()) fail_config("there is nothing to prepare: the configuration has no data.train");
  const SignalWatch signals(/*saves=*/false);
  const Work work("the preparation", {.then = "what is done is kept, and the next call goes on from there"});
  const volatile std::sig_atomic_t* stop = signals.stop();
  RunData data = open_data(config, read_model_source(config), stop);
  if (data.stopped) {
    log_info("stopped; what is done is kept, and the next call goes on from there");
    return 128 + static_cast<int>(*stop);
  }
  const int64_t epoch_steps = ceil_div(data.train_samples->counts().sequences, config.batch);
  const int64_t run_steps = steps_of_run(config, *data.train);
  const int64_t steps = run_steps > 0 ? run_steps : epoch_steps;
  if (const auto out = arguments.option("--out")) write_out(*out, *data.train, steps);
  const ordered_json json = {{"train", to_json(data.train_samples, config.seq_len)},
                             {"eval", to_json(data.eval_samples, config.seq_len)},
                             {"bad", data.bad},
                             {"seq_len", config.seq_len},
                             {"epoch_steps", epoch_steps},
                             {"steps", steps}};
  if (arguments.flag("--json")) {
    fmt::print("{}\n", json.dump());
    return 0;
  }
  for (const auto& [name, samples] : {std::pair{"train", data.train_samples}, {"eval", data.eval_samples}}) {
    if (!samples) continue;
    const SampleCounts& counts = samples->counts();
    fmt::print("{:5}  {} samples, {} tokens of which {} are trained; {} sequences of {}, {:.1f}% filled; longest {}\n",
               name, counts.samples, counts.tokens, counts.trained, counts.sequences, config.seq_len,
               100 * counts.filled(config.seq_len), counts.longest);
  }
  fmt::print("an epoch is {} steps of {} sequences{}\n", epoch_steps, config.batch,
             data.bad ? fmt::format("; {} bad samples were left out", data.bad) : "");
  return 0;
}

}  // namespace megatrain
