#include "megatrain/config/config_checks.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"

namespace megatrain {
namespace {

// Two lengths are given. If one is on the command line, says how to override the file's without editing it.
[[noreturn]] void fail_lengths(const GivenKeys& given, const std::string& first, const std::string& second) {
  const GivenKey &a = given.own.at(first), &b = given.own.at(second);
  if (a.on_command_line == b.on_command_line)
    fail_config(fmt::format("{}: both {} and {} are given; keep the one that says how long the run is", b.origin,
                            given.names(first), given.names(second)));
  const GivenKey& file = a.on_command_line ? b : a;
  const std::string &typed = a.on_command_line ? first : second, &written = a.on_command_line ? second : first;
  fail_config(fmt::format("--{}: {} gives {} too; add --{}=null to use only {}", typed, file.origin,
                          given.names(written), written, typed));
}

void check_length(const TrainConfig& config, const GivenKeys& given, const ConfigNeeds& needs) {
  std::vector<std::string> lengths;
  for (const char* key : {"steps", "epochs", "tokens"})
    if (given.has_value(key)) lengths.push_back(key);
  if (lengths.size() > 1) fail_lengths(given, lengths[0], lengths[1]);
  if (needs.steps && lengths.empty())
    fail_config(fmt::format("{}: how long is the run? Give steps, epochs or tokens", given.file));
  if (config.epochs > 0 && !config.data.order.empty())
    fail_config(
        fmt::format("{}: epochs and data.order are both given; with an order give steps", given.origin("epochs")));
}

void check_datasets(const TrainConfig& config, const GivenKeys& given) {
  const bool datasets = !config.data.train.empty();
  if (datasets && !config.data.tokens.empty())
    fail_config(fmt::format("{}: both data.train and data.tokens are given; keep one", given.origin("data.train")));
  for (const char* key : {"data.eval", "data.eval_split"})
    if (!datasets && given.has_value(key) && given.own.at(key).value.text != "0")
      fail_config(fmt::format("{}: {} needs {}", given.origin(key), given.names(key), given.names("data.train")));
  if (!config.data.eval.empty() && config.data.eval_split > 0)
    fail_config(fmt::format("{}: both {} and {} are given; keep one", given.origin("data.eval_split"),
                            given.names("data.eval"), given.names("data.eval_split")));
  if (config.data.eval_split >= 1 && config.data.eval_split != std::floor(config.data.eval_split))
    fail_config(fmt::format("{}: {} is {}, expected a fraction below 1 or a whole number of samples",
                            given.origin("data.eval_split"), given.names("data.eval_split"), config.data.eval_split));
  const bool evaluates = !config.data.eval.empty() || config.data.eval_split > 0;
  for (const char* key : {"eval.every", "eval.patience", "eval.keep_best"})
    if (!evaluates && given.has_value(key) && given.own.at(key).value.text != "0" &&
        given.own.at(key).value.text != "false")
      fail_config(fmt::format("{}: {} needs data to evaluate on: give {} or {}", given.origin(key), given.names(key),
                              given.names("data.eval"), given.names("data.eval_split")));
  if (config.sample.every > 0 && config.sample.prompts.empty())
    fail_config(fmt::format("{}: sample.every needs sample.prompts", given.origin("sample.every")));
}

// Limits for what is planned and executed action by action; beyond them, planning alone takes minutes.
void check_limits(const TrainConfig& config, const GivenKeys& given) {
  constexpr int64_t kMicroTokens = int64_t{1} << 24;
  const int64_t tokens = config.micro_batch * config.seq_len;
  if (tokens > kMicroTokens)
    fail_config(fmt::format("{}: a micro-batch of {} sequences of {} tokens is past 2^24 tokens; lower {}",
                            given.origin("micro_batch"), config.micro_batch, config.seq_len,
                            given.names("micro_batch")));
  for (const auto& [key, chunk] : {std::pair{"mlp_chunk", config.mlp_chunk}, {"head_chunk", config.head_chunk}}) {
    if (chunk > 0 && ceil_div(tokens, chunk) > kMostParts)
      fail_config(
          fmt::format("{}: {} is {}, which cuts a micro-batch of {} tokens into {} parts, expected at most "
                      "{}; raise it, or leave it out",
                      given.origin(key), key, chunk, tokens, ceil_div(tokens, chunk), kMostParts));
  }
}

void check_disk(const TrainConfig& config, const GivenKeys& given) {
  if (!config.memory.nvme_path.empty()) return;
  if (config.memory.nvme_bytes.value_or(0) > 0)
    fail_config(fmt::format("{}: memory.nvme needs memory.nvme_path, a directory on an NVMe drive",
                            given.origin("memory.nvme")));
  if (config.memory.nvme_force)
    fail_config(fmt::format("{}: memory.nvme_force needs memory.nvme_path", given.origin("memory.nvme_force")));
}

// Adapters decide what is trained.
void check_adapter(const TrainConfig& config, const GivenKeys& given) {
  const bool off = given.has("adapter.rank") && config.adapter.rank == 0;
  if (given.has("adapter.targets") && config.adapter.targets.empty() && config.adapter.target_parameters.empty() &&
      !off)
    fail_config(
        fmt::format("{}: {} names no module; give names or all-linear, or leave it out. It may be null only beside "
                    "adapter.target_parameters",
                    given.origin("adapter.targets"), given.names("adapter.targets")));
  if (config.adapter.rank == 0) return;
  for (const char* key : {"freeze", "train_only"})
    if (given.has_value(key) && given.own.at(key).value.text != "none")
      fail_config(
          fmt::format("{}: both {} and adapter are given, but adapters freeze all weights; leave {} out, or name "
                      "modules that are trained whole in adapter.also_train",
                      given.origin(key), given.names(key), given.names(key)));
  for (const auto& [module, rank] : config.adapter.rank_pattern)
    if (rank != std::floor(rank))
      fail_config(fmt::format("{}: the rank of {} is {}, expected a whole number", given.origin("adapter.rank_pattern"),
                              module, rank));
}

void check_model(const TrainConfig& config, const GivenKeys& given, const ConfigNeeds& needs) {
  const bool path = !config.model.path.empty(), from_config = !config.model.config.empty();
  if (path && from_config)
    fail_config(
        fmt::format("{}: both model.path and model.config are given; keep model.path to train an existing model "
                    "or model.config to start from random weights",
                    given.origin("model.config")));
  if (needs.model && !path && !from_config)
    fail_config(fmt::format("{}: no model; give {}, a Hugging Face directory, or model.config, a config.json",
                            given.file, given.names("model.path")));
}

void check_precision(const TrainConfig& config, const GivenKeys& given) {
  if (config.precision == "fp32" && config.state.master != "fp32")
    fail_config(
        fmt::format("{}: state.master is {}, which is about bf16 weights, and precision is fp32; leave state.master "
                    "out, or take precision: bf16",
                    given.origin("state.master"), config.state.master));
}

void check_base(const TrainConfig& config, const GivenKeys& given) {
  if (!config.model.config.empty() && config.memory.base == "files")
    fail_config(
        fmt::format("{}: memory.base is files, but model.config starts from random weights, which have no "
                    "files; leave memory.base out",
                    given.origin("memory.base")));
}

void check_data(const TrainConfig& config, const GivenKeys& given, const ConfigNeeds& needs) {
  if (!config.data.tokens.empty()) return;
  if (needs.data && config.data.train.empty() && (config.steps > 0 || config.epochs > 0 || config.tokens > 0))
    fail_config(fmt::format("{}: no data; give datasets as {}, or a file of raw little-endian token ids as data.tokens",
                            given.file, given.names("data.train")));
  for (const char* key : {"data.documents", "data.labels", "data.order"})
    if (given.has_value(key)) fail_config(fmt::format("{}: {} is given without data.tokens", given.origin(key), key));
}

void check_micro_batch(const TrainConfig& config, const GivenKeys& given) {
  if (config.micro_batch > config.batch || config.batch % config.micro_batch != 0)
    fail_config(fmt::format("{}: {} is {}, expected a divisor of {}, which is {}",
                            given.origin(given.has("micro_batch") ? "micro_batch" : "batch"),
                            given.names("micro_batch"), config.micro_batch, given.names("batch"), config.batch));
  check_limits(config, given);
}

void check_learning_rate(const TrainConfig& config, const GivenKeys& given) {
  if (config.optim.warmup >= 1 && config.optim.warmup != std::floor(config.optim.warmup))
    fail_config(fmt::format("{}: {} is {}, expected a whole number of steps, or a fraction of the run below 1",
                            given.origin("optim.warmup"), given.names("optim.warmup"), config.optim.warmup));
  if (config.optim.min_lr > config.optim.lr)
    fail_config(fmt::format("{}: {} is {}, expected at most {}, which is {}", given.origin("optim.min_lr"),
                            given.names("optim.min_lr"), config.optim.min_lr, given.names("optim.lr"),
                            config.optim.lr));
}

}  // namespace

void check_presence(const TrainConfig& config, const GivenKeys& given, const ConfigNeeds& needs, Problems& problems) {
  problems.of([&] { check_model(config, given, needs); });
  problems.of([&] { check_precision(config, given); });
  problems.of([&] { check_adapter(config, given); });
  problems.of([&] { check_base(config, given); });
  problems.of([&] { check_length(config, given, needs); });
  problems.of([&] { check_datasets(config, given); });
  problems.of([&] { check_data(config, given, needs); });
}

void check_sizes(const TrainConfig& config, const GivenKeys& given, Problems& problems) {
  problems.of([&] { check_micro_batch(config, given); });
  problems.of([&] { check_learning_rate(config, given); });
  problems.of([&] { check_disk(config, given); });
}

}  // namespace megatrain
