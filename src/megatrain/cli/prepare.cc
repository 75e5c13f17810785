// `megatrain prepare`: tokenises a configuration's training data, reports the result, and writes it out on request.
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/base/work.h"
#include "megatrain/cli/config_argument.h"
#include "megatrain/cli/signal_watch.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/data/open_data.h"
#include "megatrain/data/prepared_set.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/model_source.h"
#include "megatrain/ops/cross_entropy.h"
#include "megatrain/run/disk_need.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

ordered_json to_json(const SampleData* data, int64_t seq_len) {
  if (!data) return nullptr;
  const SampleCounts& counts = data->counts();
  return {{"samples", counts.samples},
          {"tokens", counts.tokens},
          {"trained_tokens", counts.trained},
          {"longest", counts.longest},
          {"truncated", counts.truncated},
          {"left_out", counts.dropped},
          {"dropped_turns", counts.dropped_turns},
          {"truncated_system", counts.truncated_system},
          {"dropped_too_long", counts.too_long},
          {"dropped_untrained", counts.dropped - counts.too_long},
          {"sequences", counts.sequences},
          {"filled", counts.filled(seq_len)},
          {"epoch_tokens", counts.epoch_tokens},
          {"fingerprint", data->fingerprint()}};
}

// One file of a prepared dataset, written in pieces.
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

// A directory that is written under another name and renamed when complete. So what a killed process leaves is never
// mistaken for a prepared dataset.
class OutDirectory {
 public:
  // Throws Error(bad_config) when the path is not empty, or Error(io).
  explicit OutDirectory(const std::string& path) : path_(without_slash(path)), partial_(path_ + ".partial") {
    std::error_code code;
    if (fs::exists(path_, code) && !fs::is_empty(path_, code))
      fail_config(fmt::format("--out {} is there and not empty; give a directory that is new", path));
    refuse_foreign(partial_.path());
    fs::create_directories(partial_.path(), code);
    if (code) fail_io(fmt::format("could not create {}: {}", partial_.path(), code.message()));
    lock_.emplace(partial_.path());
    if (!lock_->try_lock() || !lock_->is_at(partial_.path()))
      fail_config(
          fmt::format("--out {} is being written by another process; wait for it, or give another directory", path));
    partial_.created();
    for (const fs::directory_entry& left : fs::directory_iterator(partial_.path())) fs::remove_all(left.path(), code);
  }

  const std::string& partial() const { return partial_.path(); }
  const std::string& path() const { return path_; }

  void finish() {
    sync_directory(partial_.path());
    partial_.put_at(path_);
  }

 private:
  // Only what a killed `prepare` left is overwritten.
  static void refuse_foreign(const std::string& partial) {
    std::error_code code;
    const fs::file_status status = fs::symlink_status(partial, code);
    if (!fs::exists(status)) return;
    std::string foreign = fs::is_directory(status) ? "" : partial;
    for (auto entry = fs::directory_iterator(partial, code); foreign.empty() && !code && entry != fs::end(entry);
         entry.increment(code)) {
      const std::string name = entry->path().filename().string();
      const bool own = name == "tokens.bin" || name == "labels.bin" || name == "documents.bin" ||
                       name.starts_with(kPreparedManifest);
      if (!own || !entry->is_regular_file()) foreign = entry->path().string();
    }
    if (!foreign.empty())
      fail_config(
          fmt::format("{} is needed while --out is written, and prepare did not make {}; move it away, or give "
                      "another directory",
                      partial, foreign));
  }
  static std::string without_slash(std::string path) {
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    return path;
  }

  std::string path_;
  PartialPath partial_;
  std::optional<DirectoryLock> lock_;
};

// Writes the sequences of `steps` steps in the order of the run, in the format of data.tokens, data.labels and
// data.documents. Returns false when it was stopped; nothing is left then.
bool write_out(OutDirectory& out, SampleData& source, int64_t steps, int64_t seq_len,
               const volatile std::sig_atomic_t* stop) {
  Column<uint32_t> tokens(out.partial() + "/tokens.bin");
  Column<int32_t> labels(out.partial() + "/labels.bin");
  Column<uint64_t> documents(out.partial() + "/documents.bin");
  source.pad_sequences();
  int64_t base = 0;
  Batch batch;
  for (int64_t step = 0; step < steps; ++step) {
    if (*stop != 0) return false;
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
  finish_prepared_set(out.partial(), {.checksums = {},
                                      .tokens = "tokens.bin",
                                      .dtype = "uint32",
                                      .labels = "labels.bin",
                                      .documents = "documents.bin",
                                      .seq_len = seq_len});
  out.finish();
  log_info(fmt::format(
      "wrote {} tokens; train on them with data.tokens: {}/tokens.bin ({} beside it has the other settings)", base,
      out.path(), kPreparedManifest));
  return true;
}

int say_stopped(const volatile std::sig_atomic_t* stop) {
  log_info("stopped; progress is kept; the next call continues from there");
  return 128 + static_cast<int>(*stop);
}

}  // namespace

int verb_prepare(const Arguments& arguments) {
  const TrainConfig config = load_config_argument(arguments, {.steps = false});
  if (config.data.train.empty()) fail_config("there is nothing to prepare: the configuration has no data.train");
  const SignalWatch signals(/*saves=*/false);
  const Work work("the preparation", {.then = "progress is kept; the next call continues from there"});
  const volatile std::sig_atomic_t* stop = signals.stop();
  std::optional<OutDirectory> out;  // created first, so that a bad path is refused before tokenising
  if (const auto path = arguments.option("--out")) out.emplace(*path);
  const auto room = [&](int64_t bytes) {
    if (const std::string problem = disk_problem({.parts = {token_cache_part(config, bytes)}}); !problem.empty())
      fail(ExitCode::cannot_fit, problem);
  };
  RunData data = open_data(config, read_model_source(config), stop, room);
  if (data.stopped) return say_stopped(stop);
  const int64_t epoch_steps = ceil_div(data.train_samples->counts().sequences, config.batch);
  const int64_t run_steps = steps_of_run(config, *data.train);
  const int64_t steps = run_steps > 0 ? run_steps : epoch_steps;
  if (out && !write_out(*out, *data.train_samples, steps, config.seq_len, stop)) return say_stopped(stop);
  const ordered_json json = {{"train", to_json(data.train_samples, config.seq_len)},
                             {"eval", to_json(data.eval_samples, config.seq_len)},
                             {"bad", data.bad},
                             {"seq_len", config.seq_len},
                             {"epoch_steps", epoch_steps},
                             {"steps", steps}};
  if (arguments.json()) {
    fmt::print("{}\n", json_text(json));
    return 0;
  }
  for (const auto& [name, samples] : {std::pair{"train", data.train_samples}, {"eval", data.eval_samples}}) {
    if (!samples) continue;
    const SampleCounts& counts = samples->counts();
    fmt::print("{:5}  {}, {} tokens of which {} are trained; {} of {}, {:.1f}% filled; longest {}{}{}\n", name,
               counted(counts.samples, "sample"), counts.tokens, counts.trained, counted(counts.sequences, "sequence"),
               config.seq_len, 100 * counts.filled(config.seq_len), counts.longest,
               counts.truncated ? fmt::format("; {} truncated", counts.truncated) : "",
               counts.dropped ? fmt::format("; {} left out, too long or with nothing to train", counts.dropped) : "");
    if (counts.truncated + counts.dropped > 0)
      fmt::print("       an epoch has {} of these tokens\n", counts.epoch_tokens);
  }
  const char* were = data.bad == 1 ? "was" : "were";
  fmt::print("an epoch is {} of {}{}\n", counted(epoch_steps, "step"), counted(config.batch, "sequence"),
             data.bad ? fmt::format("; {} {} left out", counted(data.bad, "bad sample"), were) : "");
  return 0;
}

}  // namespace megatrain
