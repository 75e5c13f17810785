#include "megatrain/config/idle_keys.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/config/config_text.h"
#include "megatrain/config/problems.h"

namespace megatrain {
namespace {

bool raw_tokens(const TrainConfig& c) { return !c.data.tokens.empty(); }

std::string tokenised(const TrainConfig& c) {
  return raw_tokens(c) ? "data.tokens holds sequences that are tokenised and packed already; leave it out, or give the "
                         "text as data.train"
                       : "";
}

std::string file_order(const TrainConfig& c) {
  return raw_tokens(c) ? "the sequences of data.tokens are taken in the file's order; give another as data.order" : "";
}

// The tokenizer is still used to export random weights, which have none of their own, and to tokenise samples.
std::string no_text(const TrainConfig& c) {
  return raw_tokens(c) && c.model.config.empty() && c.sample.every == 0
             ? "data.tokens is tokenised already, and the export has the tokenizer of model.path; leave it out"
             : "";
}

std::string text_data(const TrainConfig& c) {
  return !c.data.train.empty() ? "it is the type of the ids in data.tokens, and data.train is given; leave it out" : "";
}

std::string no_samples(const TrainConfig& c) {
  return c.sample.every == 0 ? "sample.every is 0, so nothing is answered; give sample.every" : "";
}

std::string constant_rate(const TrainConfig& c) {
  return c.optim.schedule == "constant"
             ? fmt::format("{} is constant; leave it out, or take linear, cosine or wsd, which end there",
                           c.names("optim.schedule"))
             : "";
}

std::string no_decay(const TrainConfig& c) {
  return c.optim.schedule != "wsd"
             ? fmt::format("it is of optim.schedule: wsd, and the schedule is {}; leave it out", c.optim.schedule)
             : "";
}

std::string long_warmup(const TrainConfig& c) {
  if (c.steps == 0 || c.optim.warmup <= static_cast<double>(c.steps)) return "";
  return fmt::format("{} steps of warmup in a run of {}: {} is never reached; lower it", c.optim.warmup, c.steps,
                     c.names("optim.lr"));
}

std::string whole_warmup(const TrainConfig& c) {
  return c.optim.warmup >= 1 || c.optim.warmup == 0
             ? "it limits an optim.warmup that is a fraction, and that is not; leave it out"
             : "";
}

std::string no_such_step(const TrainConfig& c) {
  if (c.trace.ranges.empty()) return "";
  const auto [first, last] = std::pair{c.trace.ranges.front().first, c.trace.ranges.back().second};
  if (first == 0) return "it names step 0, and steps count from 1; leave that out";
  if (c.steps == 0 || last <= c.steps) return "";
  return fmt::format("it names step {}, and the run has {}; name steps of the run", last, c.steps);
}

// dump.grads and dump.state use these steps if they are true or neither is given. Gradients have no step 0.
std::string no_dumps(const TrainConfig& c) {
  StepSet from_one = c.dump.steps;
  if (from_one.contains(0) && !from_one.ranges.empty()) {
    auto& first = from_one.ranges.front();
    if (++first.first > first.second) from_one.ranges.erase(from_one.ranges.begin());
  }
  const bool meant = c.dump.state == c.dump.steps || c.dump.grads == c.dump.steps || c.dump.grads == from_one;
  return c.dump.steps.empty() || meant
             ? ""
             : "dump.grads and dump.state are off, or name their own steps; leave it out, or give one of them as true";
}

std::string one_evaluation(const TrainConfig& c) {
  return c.eval.every == 0 && c.eval.every_part == 0
             ? fmt::format("the loss is measured only at the end; give {}", c.names("eval.every"))
             : "";
}

std::string no_adapter(const TrainConfig& c) {
  return c.adapter.rank == 0 ? "adapter.rank is 0, so all weights are trained; give a rank, or leave it out" : "";
}

std::string trained_base(const TrainConfig& c) {
  return c.adapter.rank == 0
             ? "without adapters all weights are trained, and none stay in files or unchanged in memory; "
               "give adapter.rank, or leave it out"
             : "";
}

std::string loaded_adapter(const TrainConfig& c) {
  return c.model.adapter.empty() ? "" : "the adapters begin with the values in model.adapter; leave it out";
}

// TensorBoard reads the run's own files.
std::string no_tracker(const TrainConfig& c) {
  const std::vector<std::string>& to = c.track.to;
  return to.empty() || (to.size() == 1 && to[0] == "tensorboard")
             ? "it names the run in wandb, mlflow or trackio, and track.to has none of them; give one there"
             : "";
}

constexpr IdleRule kRules[] = {
    {"data.shuffle", file_order, "data.tokens", "false", true},
    {"data.packing", tokenised, "data.tokens"},
    {"data.train_on", tokenised, "data.tokens"},
    {"data.overlong", tokenised, "data.tokens"},
    {"data.max_samples", tokenised, "data.tokens", "0"},
    {"data.skip_bad", tokenised, "data.tokens", "0"},
    {"data.info", tokenised, "data.tokens"},
    {"data.cache", tokenised, "data.tokens"},
    {"data.tokenizer", no_text, "data.tokens"},
    {"data.dtype", text_data, "data.train"},
    {"adapter.alpha", no_adapter, "adapter.rank"},
    {"adapter.dropout", no_adapter, "adapter.rank"},
    {"adapter.targets", no_adapter, "adapter.rank"},
    {"adapter.target_parameters", no_adapter, "adapter.rank"},
    {"adapter.exclude", no_adapter, "adapter.rank"},
    {"adapter.rslora", no_adapter, "adapter.rank"},
    {"adapter.dora", no_adapter, "adapter.rank"},
    {"adapter.bias", no_adapter, "adapter.rank"},
    {"adapter.init", no_adapter, "adapter.rank"},
    {"adapter.init", loaded_adapter, "model.adapter"},
    {"adapter.rank_pattern", no_adapter, "adapter.rank"},
    {"adapter.alpha_pattern", no_adapter, "adapter.rank"},
    {"adapter.also_train", no_adapter, "adapter.rank"},
    {"adapter.trainable_token_indices", no_adapter, "adapter.rank"},
    {"memory.base", trained_base, "adapter.rank", "auto"},
    {"optim.min_lr", constant_rate, "optim.schedule", "0"},
    {"optim.decay", no_decay, "optim.schedule"},
    {"optim.warmup", long_warmup, "steps", "0", false, true},
    {"optim.warmup_most", whole_warmup, "optim.warmup", "0"},
    {"eval.patience", one_evaluation, "eval.every", "0"},
    {"sample.prompts", no_samples, "sample.every"},
    {"sample.max_tokens", no_samples, "sample.every"},
    {"dump.steps", no_dumps, "dump.state", "none"},
    {"track.project", no_tracker, "track.to"},
    {"track.name", no_tracker, "track.to"},
    {"trace", no_such_step, "steps", "none"},
};

}  // namespace

std::span<const IdleRule> idle_rules() { return kRules; }

void settle_idle_keys(TrainConfig& config, const GivenKeys& given) {
  Problems problems;
  for (const IdleRule& rule : idle_rules()) {
    if (!given.has_value(rule.key)) continue;
    const ConfigText& value = given.own.at(rule.key).value;
    if (value.items.empty() && value.text == rule.off) continue;
    const std::string why = rule.why(config);
    if (why.empty()) continue;
    const GivenKey& idle = given.own.at(rule.key);
    const ConfigKey& key = *find_config_key(rule.key);
    const std::string standard = key.write(TrainConfig{});
    const bool foreign = !idle.theirs.empty() && idle.theirs != "skip-bad";
    if (!foreign && !idle.on_command_line && !rule.even_default && key.write(config) == standard) continue;
    const bool overridden =
        !idle.on_command_line && given.has(rule.beside) && given.own.at(rule.beside).on_command_line;
    const std::string said = fmt::format("{}: {} {}: {}", idle.origin, given.names(rule.key),
                                         rule.warns ? "is too long" : "has no effect", why);
    if (!foreign && !overridden && !rule.warns) {
      problems.add(said);
      continue;
    }
    if (idle.origin != given.file) log_warn(said);  // a default of the other trainer gets no warning
    if (rule.warns) continue;
    key.read(config, standard == "null" ? ConfigText{.text = standard, .null = true}
                                        : config_text_of_word(idle.origin, key, standard));
  }
  problems.refuse();
}

}  // namespace megatrain
