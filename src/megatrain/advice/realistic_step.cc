#include "megatrain/advice/realistic_step.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "megatrain/advice/plan_inputs.h"

namespace megatrain {

int64_t hiding_batch(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                     const TensorTypes& stored, int64_t least_tokens) {
  TrainConfig one = config;
  one.batch = one.micro_batch = 1;
  one.plan.clear();
  const PlanInputs made = plan_inputs(one, model, planned, stored, true);
  const bool adapters = config.adapter.rank > 0;
  const int64_t hiding = adapters ? tokens_to_hide_host_weights(made.workload, made.profile)
                                  : tokens_to_hide_host_update(made.workload, made.profile);
  const int64_t tokens = std::min(std::max(hiding, least_tokens), kMostHidingTokens);
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(tokens / config.seq_len, 1))));
}

int64_t even_micro_batch(int64_t batch, int64_t seq_len, int64_t micro_tokens) {
  int64_t micro = 1;
  while (micro * 2 * seq_len <= micro_tokens && batch % (micro * 2) == 0) micro *= 2;
  return micro;
}

namespace {

std::optional<Fit> fit_of(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                          const TensorTypes& stored) {
  return fit(plan_inputs(config, model, planned, stored, true));
}

}  // namespace

TrainConfig with_realistic_step(TrainConfig config, const ModelConfig& model, const PlannedMachine& planned,
                                const TensorTypes& stored, const FreeStep& free) {
  if (!free.any()) return config;
  if (free.batch) config.batch = hiding_batch(config, model, planned, stored);
  if (!free.micro_batch) {
    if (config.batch % config.micro_batch != 0) config.batch = config.micro_batch;
    return config;
  }
  config.micro_batch = even_micro_batch(config.batch, config.seq_len, kMicroTokens);
  std::optional<Fit> found = fit_of(config, model, planned, stored);
  if (!found && config.micro_batch > 1) {
    config.micro_batch = 1;
    found = fit_of(config, model, planned, stored);
  }
  if (!found && free.batch && config.batch > 1) {
    TrainConfig one = config;
    one.batch = 1;
    if (fit_of(one, model, planned, stored)) return one;
  }
  // a base that is read from a drive needs more tokens a step than the link alone
  if (!found || !free.batch || config.adapter.rank == 0 || found->need.file_bytes() + found->need.disk_bytes() == 0)
    return config;
  TrainConfig larger = config;
  larger.batch = hiding_batch(config, model, planned, stored, kMostHidingTokens);
  if (config.micro_batch > 1) larger.micro_batch = even_micro_batch(larger.batch, larger.seq_len, kMicroTokens);
  const auto of_larger = fit_of(larger, model, planned, stored);
  return of_larger && of_larger->outlook.tokens_per_s > found->outlook.tokens_per_s ? larger : config;
}

}  // namespace megatrain
