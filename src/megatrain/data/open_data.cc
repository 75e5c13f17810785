#include "megatrain/data/open_data.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <ranges>
#include <tuple>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/base/work.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/data/prepared_set.h"
#include "megatrain/data/token_data.h"
#include "megatrain/data/tokenize_progress.h"
#include "megatrain/dataset/content_hash.h"
#include "megatrain/dataset/dataset_info.h"
#include "megatrain/dataset/dataset_list.h"
#include "megatrain/dataset/some_of.h"
#include "megatrain/dataset/tokenize_dataset.h"
#include "megatrain/host/thread_team.h"
#include "megatrain/io/user_cache.h"

namespace megatrain {
namespace {

constexpr std::string_view kAutoEvaluation = "auto";  // as data.eval
constexpr uint64_t kSplit = 0x73706c6974;             // purpose of random numbers

Dataset dataset_of(const DatasetChoice& choice, Dataset dataset, const KeyNames& names) {
  if (choice.format != "auto") dataset.form = dataset_form(choice.format);
  dataset.weight *= choice.weight;
  if (choice.most > 0) dataset.most = choice.most;
  dataset.most_percent = choice.most_percent;
  DatasetColumns& columns = dataset.columns;
  const std::map<std::string, std::string*> fields = {
      {"columns.messages", &columns.messages},  {"columns.role", &columns.role},
      {"columns.content", &columns.content},    {"columns.system", &columns.system},
      {"columns.tools", &columns.tools},        {"columns.prompt", &columns.prompt},
      {"columns.query", &columns.query},        {"columns.response", &columns.response},
      {"columns.history", &columns.history},    {"columns.text", &columns.text},
      {"tags.user", &columns.user_tag},         {"tags.assistant", &columns.assistant_tag},
      {"tags.system", &columns.system_tag},     {"tags.observation", &columns.observation_tag},
      {"tags.function", &columns.function_tag},
  };
  for (const auto& [name, value] : choice.options) {
    if (name != "subset" && name != "split") *fields.at(name) = value;
  }
  if (columns.named_in == DatasetColumns().named_in) columns.named_in = names("columns");
  return dataset;
}

DatasetPart part_of(const DatasetChoice& choice) {
  const auto option = [&](const char* name) {
    const auto found = choice.options.find(name);
    return found == choice.options.end() ? "" : found->second;
  };
  return {.subset = option("subset"), .split = option("split")};
}

// data.eval: auto. The held-out splits of the datasets that are trained on.
std::vector<Dataset> held_out_datasets(const TrainConfig& config) {
  std::vector<Dataset> all;
  std::vector<std::string> names;
  for (DatasetChoice choice : config.data.train) {
    names.push_back(choice.path);
    if (is_dataset_list(choice.path)) continue;
    auto dataset = open_held_out(choice.path, config.data.info, part_of(choice).subset);
    if (!dataset) continue;
    choice.weight = 1;
    choice.most = choice.most_percent = 0;
    all.push_back(dataset_of(choice, std::move(*dataset), config.names));
  }
  if (all.empty())
    fail_input(
        fmt::format("{} is auto, but {} has no validation or test split (a folder, or a name of the hub, with "
                    "files or folders of such names); give files to evaluate on, or hold out a part with {}.",
                    config.names("data.eval"), some_of(names), config.names("data.eval_split")));
  return all;
}

// Opens datasets one by one, or those of a list.
std::vector<Dataset> datasets_of(const std::vector<DatasetChoice>& choices, DatasetUse use, const TrainConfig& config) {
  if (use == DatasetUse::evaluate && choices.size() == 1 && choices.front().path == kAutoEvaluation)
    return held_out_datasets(config);
  std::vector<Dataset> all;
  for (const DatasetChoice& choice : choices) {
    if (!is_dataset_list(choice.path)) {
      all.push_back(
          dataset_of(choice, open_dataset(choice.path, config.data.info, use, part_of(choice)), config.names));
      continue;
    }
    for (Dataset& dataset : open_dataset_list(choice.path, use))
      all.push_back(dataset_of(choice, std::move(dataset), config.names));
  }
  return all;
}

std::string cache_of(const TrainConfig& config) {
  return config.data.cache.empty() ? user_cache_directory() + "/data" : config.data.cache;
}

// The files of data.train, to find out whether another path leads to one of them. Links to a file count as the file.
class TrainedFiles {
 public:
  TrainedFiles(const TrainConfig& config, const volatile std::sig_atomic_t* stop)
      : hashes_(cache_of(config) + "/hashes"), stop_(stop) {
    for (const Dataset& dataset : datasets_of(config.data.train, DatasetUse::train, config)) {
      for (const std::string& file : dataset.files) {
        struct stat status {};
        if (::stat(file.c_str(), &status) != 0) continue;  // opening it reports the problem
        by_identity_.emplace(std::pair{status.st_dev, status.st_ino}, file);
        by_size_[status.st_size].push_back(file);
      }
    }
  }

  // `file` and which training file it is; empty if it is none.
  std::string describe(const std::string& file) const {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) return "";
    if (const auto found = by_identity_.find({status.st_dev, status.st_ino}); found != by_identity_.end())
      return found->second == file ? file : fmt::format("{} (which is {})", file, found->second);
    const auto equal = by_size_.find(status.st_size);
    if (equal == by_size_.end() || status.st_size == 0) return "";
    const auto copied = std::find_if(equal->second.begin(), equal->second.end(), [&](const std::string& trained) {
      const auto own = content_hash(file, hashes_, stop_), other = content_hash(trained, hashes_, stop_);
      return own && other && own->hash == other->hash;
    });
    return copied == equal->second.end() ? "" : fmt::format("{} (a copy of {})", file, *copied);
  }

 private:
  std::map<std::pair<dev_t, ino_t>, std::string> by_identity_;
  std::map<off_t, std::vector<std::string>> by_size_;
  std::string hashes_;
  const volatile std::sig_atomic_t* stop_;
};

// Evaluation on training samples says nothing about other samples.
void warn_of_shared_files(const TrainConfig& config, const volatile std::sig_atomic_t* stop) {
  if (config.data.eval.empty()) return;
  const TrainedFiles trained(config, stop);
  std::vector<std::string> shared;
  for (const Dataset& dataset : datasets_of(config.data.eval, DatasetUse::evaluate, config)) {
    for (const std::string& file : dataset.files)
      if (std::string one = trained.describe(file); !one.empty()) shared.push_back(std::move(one));
  }
  if (shared.empty()) return;
  log_warn(
      fmt::format("{} and {} both read {}: the evaluation measures samples that are trained on; give other files as "
                  "{}, or hold out a part with {}",
                  config.names("data.train"), config.names("data.eval"), some_of(shared), config.names("data.eval"),
                  config.names("data.eval_split")));
}

// Without a warning, nobody would notice an empty shard or one whose download failed at its beginning. Samples are in
// the order of the files.
void warn_of_empty_files(const Dataset& dataset, const SampleStore& store) {
  std::vector<std::string> empty;
  auto samples = std::views::iota(int64_t{0}, store.samples());
  auto next = samples.begin();
  for (const std::string& file : dataset.files) {
    const auto begin = next;
    next = std::ranges::partition_point(begin, samples.end(),
                                        [&](int64_t sample) { return store.place(sample).file == file; });
    if (next == begin) empty.push_back(file);
  }
  if (!empty.empty())
    log_warn(
        fmt::format("dataset {}: no sample is used from {}; check that each of these files is complete, or remove it",
                    dataset.name, some_of(empty)));
}

SampleDataOptions sample_options(const TrainConfig& config, const ModelConfig& model, const ModelText& text) {
  return {.seq_len = config.seq_len,
          .batch = config.batch,
          .micro_batch = config.micro_batch,
          .vocab = model.vocab,
          .check_ids = text.tokenizer.vocab_size() > model.vocab,
          .padding = static_cast<int32_t>(text.padding < model.vocab ? text.padding : 0),
          .seed = config.seed,
          .epochs = config.epochs,
          .packing = config.data.packing,
          .shuffle = config.data.shuffle,
          .overlong = config.data.overlong == "truncate"      ? Overlong::truncate
                      : config.data.overlong == "drop"        ? Overlong::drop
                      : config.data.overlong == "by_turn"     ? Overlong::by_turn
                      : config.data.overlong == "keep_answer" ? Overlong::keep_answer
                                                              : Overlong::error,
          .recent = config.data.overlong == "by_turn" && config.data.train_on == "last",
          .short_epochs = config.conventions != "megatrain",
          .whole_steps = config.conventions == "axolotl",
          .names = config.names};
}

// Axolotl drops samples that are too long before it splits, LLaMA-Factory and megatrain after.
bool is_split(const SampleSet& set, int64_t sample, const TrainConfig& config) {
  const bool first = config.conventions == "axolotl" && config.data.overlong == "drop";
  return !first || set.store->is_text(sample) || set.store->length(sample) <= config.seq_len;
}

// Moves the part of all samples that data.eval_split asks for into the returned sets. The seed chooses which.
std::vector<SampleSet> split(std::vector<SampleSet>& sets, const TrainConfig& config) {
  const double part = config.data.eval_split;
  const bool up = config.conventions != "megatrain";
  int64_t all = 0;
  for (const SampleSet& set : sets)
    all += std::count_if(set.samples.begin(), set.samples.end(),
                         [&](int64_t sample) { return is_split(set, sample, config); });
  const double share = part * static_cast<double>(all);
  const int64_t wanted = part >= 1 ? static_cast<int64_t>(part)
                         : up      ? static_cast<int64_t>(std::ceil(share))
                                   : std::llround(share);
  if (wanted < 1 || wanted >= all)
    fail_input(fmt::format("{} {} takes {} of {} samples; expected at least one, with at least one left to train on",
                           config.names("data.eval_split"), part, wanted, all));
  std::vector<int64_t> order = shuffled(all, config.seed, kSplit, 0);
  order.resize(wanted);
  std::sort(order.begin(), order.end());
  std::vector<SampleSet> taken;
  auto next = order.begin();
  int64_t index = 0;
  for (SampleSet& set : sets) {
    SampleSet apart{set.store, {}, 1};
    std::vector<int64_t> rest;
    for (const int64_t sample : set.samples) {
      const bool take = is_split(set, sample, config) && next != order.end() && *next == index++;
      if (take) ++next;
      (take ? apart.samples : rest).push_back(sample);
    }
    set.samples = std::move(rest);
    taken.push_back(std::move(apart));
  }
  return taken;
}

std::string describe_cuts(const SampleCounts& counts) {
  if (counts.truncated == 0) return "";
  if (counts.dropped_turns == 0 && counts.truncated_system == 0) return fmt::format(", {} truncated", counts.truncated);
  return fmt::format(", {} truncated ({} lost their oldest turns, {} the end of the system turn)", counts.truncated,
                     counts.dropped_turns, counts.truncated_system);
}

void log_counts(const char* what, const SampleCounts& counts, const SampleDataOptions& options) {
  const std::string sequences = options.packing
                                    ? fmt::format("{} of {}, {:.1f}% filled", counted(counts.sequences, "sequence"),
                                                  options.seq_len, 100 * counts.filled(options.seq_len))
                                    : fmt::format("the longest has {}", counts.longest);
  log_info(fmt::format("{}: {}, {} tokens ({} trained), {}{}{}", what, counted(counts.samples, "sample"),
                       format_count(counts.tokens), format_count(counts.trained), sequences, describe_cuts(counts),
                       counts.dropped ? fmt::format(", {} dropped ({} too long, {} without trained tokens)",
                                                    counts.dropped, counts.too_long, counts.dropped - counts.too_long)
                                      : ""));
}

// Padding costs as much compute as text. Without packing there is hardly any.
void warn_of_padding(const SampleCounts& counts, const TrainConfig& config) {
  constexpr double kFew = 0.5;
  const double filled = counts.filled(config.seq_len);
  if (!config.data.packing || filled >= kFew) return;
  log_warn(fmt::format("{:.0f}% of the compute goes to padding: lower {} (the longest sample has {} tokens), or {}",
                       100 * (1 - filled), config.names("seq_len"), counts.longest, config.names("batch")));
}

// Facts that are known only after reading the samples.
struct SampleFacts {
  bool all_text = false;
  bool none_named = false;  // in dataset_info.json
};

SampleFacts facts_of(const TrainConfig& config, const std::vector<SampleSet>& train,
                     const std::vector<SampleSet>& eval) {
  const auto is_text = [](const SampleSet& set) {
    return std::all_of(set.samples.begin(), set.samples.end(), [&](int64_t s) { return set.store->is_text(s); });
  };
  const auto is_named = [&](const DatasetChoice& choice) {
    std::vector<std::string> known;
    return find_dataset(choice.path, config.data.info, known).has_value();
  };
  const auto& [sets, held] = std::tie(config.data.train, config.data.eval);
  return {
      .all_text = std::all_of(train.begin(), train.end(), is_text) && std::all_of(eval.begin(), eval.end(), is_text),
      .none_named = !config.data.info.empty() && std::none_of(sets.begin(), sets.end(), is_named) &&
                    std::none_of(held.begin(), held.end(), is_named)};
}

// A key that has no effect if a fact holds. config/idle_keys.h has those that can be decided without samples.
struct IdleBySamples {
  const char* key;
  bool SampleFacts::*fact;
  const char* why;
  bool ignored_there;  // the other trainer ignores its own key for it, too
};
constexpr IdleBySamples kIdleBySamples[] = {
    {"data.train_on", &SampleFacts::all_text, "all samples are text, and every token of text is trained", true},
    {"data.overlong", &SampleFacts::all_text, "all samples are text, which is cut into pieces of seq_len", true},
    {"data.info", &SampleFacts::none_named, "no dataset is named in its dataset_info.json", false},
};

// Warns only about values that ask for something: not about our default written out, nor about another trainer's
// default that is not in its file.
void warn_of_idle(const TrainConfig& config, const SampleFacts& facts) {
  for (const IdleBySamples& idle : kIdleBySamples) {
    const ConfigKey& key = *find_config_key(idle.key);
    const bool asked = config.names.is_theirs(idle.key) ? config.names.is_given_there(idle.key) && !idle.ignored_there
                                                        : key.write(config) != key.write(TrainConfig());
    if (asked && facts.*idle.fact)
      log_warn(fmt::format("{} has no effect: {}; leave it out", config.names(idle.key), idle.why));
  }
}

// Refuses samples of the other kind, because LLaMA-Factory's behaviour is not what users want. With `stage: pt` it
// trains only the first message of a conversation, with `stage: sft` it drops a text.
void check_stage(const TrainConfig& config, const std::vector<SampleSet>& sets) {
  if (config.stage.empty()) return;
  const bool text = config.stage == "pt";
  for (const SampleSet& set : sets) {
    const auto other = std::find_if(set.samples.begin(), set.samples.end(),
                                    [&](int64_t sample) { return set.store->is_text(sample) != text; });
    if (other == set.samples.end()) continue;
    fail_input(sentence_of(
        {set.store->place(*other),
         text ? "this sample is a conversation, but stage: pt trains on text (LLaMA-Factory would train only on the "
                "first message, without its answer); give stage: sft, or write the samples as {\"text\"}"
              : "this sample is text, but stage: sft trains on conversations (LLaMA-Factory would drop it); give "
                "stage: pt, or write the samples as conversations"}));
  }
}

// Axolotl's step count may end a run before its epochs are complete.
void warn_of_early_end(const SampleData& samples, const TrainConfig& config) {
  if (config.conventions != "axolotl" || config.epochs <= 0) return;
  const auto steps = static_cast<double>(samples.steps()), epoch = static_cast<double>(samples.epoch_steps());
  const double whole = std::ceil(config.epochs * epoch - 1e-9);
  if (steps >= whole) return;
  log_warn(
      fmt::format("{} is {}, which is {} by Axolotl's count, but an epoch of this data has {}: the run ends after "
                  "{:.4g} epochs; --epochs=null --steps={} trains all epochs",
                  config.names("epochs"), config.epochs, counted(samples.steps(), "step"), samples.epoch_steps(),
                  steps / epoch, whole));
}

std::unique_ptr<SampleData> make_evaluation(std::vector<SampleSet> sets, SampleDataOptions options) {
  options.epochs = 1;
  options.shuffle = false;
  for (SampleSet& set : sets) set.weight = 1;
  auto samples = std::make_unique<SampleData>(std::move(sets), options);
  log_counts("evaluation data", samples->counts(), options);
  return samples;
}

}  // namespace

ModelText open_text(const TrainConfig& config, const std::string& model_directory) {
  const std::string& path = config.data.tokenizer.empty() ? model_directory : config.data.tokenizer;
  if (path.empty())
    fail_config(
        "data.train and sample.prompts need a tokenizer: give data.tokenizer (a directory with a tokenizer.json) "
        "beside model.config");
  return ModelText::load(path, config.data.chat_template, config.names("data.tokenizer"),
                         config.names("data.template"));
}

std::optional<std::vector<SampleSet>> open_sets(const TrainConfig& config, DatasetUse use, const ModelText& text,
                                                const volatile std::sig_atomic_t* stop, int64_t& bad,
                                                const CacheRoom& room) {
  const auto& choices = use == DatasetUse::train ? config.data.train : config.data.eval;
  std::vector<SampleSet> sets;
  for (const Dataset& dataset : datasets_of(choices, use, config)) {
    Work work("tokenising " + dataset.name, {.ends_at_stop = true});
    TokenizeProgress progress(dataset.name);
    TokenizeOptions options;
    options.cache_directory = cache_of(config);
    options.cache_key = config.names("data.cache");
    options.threads = team_size(config.threads);
    options.skip_bad = config.data.skip_bad - bad;
    options.train_on = train_on(config.data.train_on);
    if (config.data.overlong == "keep_answer") options.keep_answer_within = config.seq_len;
    options.stop = stop;
    options.begins = [&](int64_t bytes, double fraction, int64_t tokens) {
      if (room) room(bytes);
      progress.at(fraction, tokens);
    };
    options.progress = [&](double fraction, int64_t tokens) {
      work.advance(fraction);
      progress.at(fraction, tokens);
    };
    const TextCoder model{.tokenizer = text.tokenizer,
                          .tokenizer_identity = text.tokenizer_identity,
                          .chat_template = text.chat_template ? &*text.chat_template : nullptr,
                          .template_identity = text.template_identity,
                          .eos = text.eos};
    std::optional<SampleStore> store = tokenize(dataset, model, options);
    if (!store) return std::nullopt;
    for (const BadSample& one : store->bad()) log_warn(sentence_of(one) + " (skipped)");
    warn_of_empty_files(dataset, *store);
    const SampleNotes& notes = store->notes();
    if (notes.endless > 0) {
      log_warn(
          fmt::format("dataset {}: in {} of {} samples the end of the last answer is not trained, so the model does "
                      "not learn to stop; let the chat template write the end token (eos_token) after the answer, if "
                      "needed in your own file, named in {}",
                      dataset.name, notes.endless, store->samples(), config.names("data.template")));
    }
    if (notes.guessed > 0) {
      log_warn(
          fmt::format("dataset {}: in {} of {} samples the chat template begins an answer neither with its generation "
                      "prompt nor as it begins a plain answer, so where training begins is a guess; put {{% generation "
                      "%}} and {{% endgeneration %}} around the answers in your own template, named in {}",
                      dataset.name, notes.guessed, store->samples(), config.names("data.template")));
    }
    if (notes.unreasoned > 0) {
      log_warn(
          fmt::format("dataset {}: in {} of {} samples the chat template leaves out the reasoning of the last answer, "
                      "so it is not trained; name a template that writes it in {}, or put it into the content",
                      dataset.name, notes.unreasoned, store->samples(), config.names("data.template")));
    }
    bad += std::ssize(store->bad());
    SampleSet set{std::make_shared<const SampleStore>(std::move(*store)), {}, dataset.weight};
    const int64_t count = set.store->samples();
    set.samples.resize(count);
    const int64_t part = std::llround(static_cast<double>(count * dataset.most_percent) / 100);
    for (const int64_t most : {config.data.max_samples, dataset.most, part})
      if (most > 0 && most < std::ssize(set.samples)) set.samples.resize(most);
    std::iota(set.samples.begin(), set.samples.end(), 0);
    sets.push_back(std::move(set));
  }
  return sets;
}

int64_t steps_between(int64_t every, double part, int64_t run_steps, int64_t epoch_steps) {
  if (part == 0) return every;
  if (part == 1) return epoch_steps;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(static_cast<double>(run_steps) * part)));
}

int64_t steps_of_run(const TrainConfig& config, const BatchSource& source) {
  if (config.epochs > 0) return source.steps();
  if (config.tokens > 0) return ceil_div(config.tokens, config.batch * config.seq_len);
  return config.steps;
}

RunData open_data(const TrainConfig& config, const ModelSource& model, const volatile std::sig_atomic_t* stop,
                  const CacheRoom& room) {
  RunData data;
  if (config.data.train.empty()) {
    check_prepared_files(config);
    data.train = std::make_unique<TokenData>(config, model.config.vocab);
    return data;
  }
  data.text = open_text(config, model.directory);
  SampleDataOptions options = sample_options(config, model.config, *data.text);
  warn_of_shared_files(config, stop);
  auto train = open_sets(config, DatasetUse::train, *data.text, stop, data.bad, room);
  auto eval = open_sets(config, DatasetUse::evaluate, *data.text, stop, data.bad, room);
  if (!train || !eval) {
    data.stopped = true;
    return data;
  }
  for (const auto* const sets : {&*train, &*eval}) check_stage(config, *sets);
  warn_of_idle(config, facts_of(config, *train, *eval));
  if (config.data.eval_split > 0) eval = split(*train, config);
  options.tolerated = config.data.skip_bad - data.bad;
  auto samples = std::make_unique<SampleData>(std::move(*train), options);
  log_counts("training data", samples->counts(), options);
  warn_of_padding(samples->counts(), config);
  warn_of_early_end(*samples, config);
  data.train_samples = samples.get();
  data.train = std::move(samples);
  if (!eval->empty()) {
    auto held = make_evaluation(std::move(*eval), options);
    data.eval_samples = held.get();
    data.eval = std::move(held);
  }
  return data;
}

std::unique_ptr<BatchSource> open_evaluation(const TrainConfig& config, const ModelSource& model) {
  const ModelText text = open_text(config, model.directory);
  SampleDataOptions options = sample_options(config, model.config, text);
  int64_t bad = 0;
  auto sets = open_sets(config, DatasetUse::evaluate, text, nullptr, bad);
  options.tolerated = config.data.skip_bad - bad;
  return make_evaluation(std::move(*sets), options);
}

}  // namespace megatrain
