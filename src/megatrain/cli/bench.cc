// `bench step`: the trainer's own loop on random weights and tokens.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/target.h"
#include "megatrain/cli/words.h"
#include "megatrain/train/metrics.h"
#include "megatrain/train/setup.h"
#include "megatrain/train/state_files.h"
#include "megatrain/train/trainer.h"

namespace megatrain {

namespace {

// Uniform ids, every position trained but the last of a sequence.
Batch random_batch(const TrainConfig& config, int64_t vocab, int64_t step) {
  constexpr uint64_t kPurpose = 0x62656e6368;  // "bench"
  Batch batch;
  const int64_t tokens = config.micro_batch * config.seq_len;
  for (int64_t m = 0; m < config.batch / config.micro_batch; ++m) {
    MicroBatch micro;
    const int64_t first = (step * config.batch / config.micro_batch + m) * tokens;
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t position = t % config.seq_len;
      if (position == 0) micro.document_begin.push_back(static_cast<int32_t>(t));
      micro.tokens.push_back(static_cast<int32_t>(
          random_below(config.seed, kPurpose, static_cast<uint64_t>(first + t), static_cast<uint64_t>(vocab))));
      micro.positions.push_back(static_cast<int32_t>(position));
    }
    micro.document_begin.push_back(static_cast<int32_t>(tokens));
    for (int64_t t = 0; t < tokens; ++t) {
      const bool last = (t + 1) % config.seq_len == 0;
      micro.labels.push_back(last ? kIgnoreLabel : micro.tokens[static_cast<size_t>(t + 1)]);
    }
    micro.longest = config.seq_len;
    micro.trained = config.micro_batch * (config.seq_len - 1);
    batch.tokens += tokens;
    batch.trained += micro.trained;
    batch.micro_batches.push_back(std::move(micro));
  }
  return batch;
}

// "--seq-len 1024" as people type it, for "--seq_len".
Words with_key_spelling(Words words) {
  for (std::string& word : words) {
    for (const char* name : {"--seq-len", "--micro-batch"}) {
      if (word.rfind(name, 0) == 0)
        std::replace(word.begin() + 2, word.begin() + static_cast<int64_t>(std::string(name).size()), '-', '_');
    }
  }
  return words;
}

int bench_step(const Words& words) {
  const Arguments arguments(with_key_spelling(words), {"--layers", "-r", "--slots"},
                            {"--json", "--serial", "--no-hash"}, "bench step");
  Target target =
      read_target(arguments.one("PRESET or config.json"), arguments.overrides(), arguments.integer("--layers"));
  const TrainConfig& config = target.config;
  const int64_t steps = arguments.integer("-r").value_or(5);

  Machine machine = open_machine(config.device, config.threads);
  const RunIdentity identity = make_identity(config, target.model);
  const Workload workload = make_workload(config, target.model, identity, machine);
  const MachineProfile profile = machine_profile(*machine.device);
  Plan plan = choose_plan(config, workload, make_budgets(config, *machine.device), profile, nullptr);
  if (const auto slots = arguments.integer("--slots")) {
    plan.slots = *slots;
    std::fill(plan.weights.begin(), plan.weights.end(), Tier::host);
  }
  plan.serial = plan.serial || arguments.flag("--serial");
  check_plan(workload, plan);
  log_info(explain(workload, plan, estimate(workload, plan, profile)));
  Trainer trainer(machine, target.model, identity, ops_shape(config, target.model, identity), workload, plan,
                  static_cast<int>(config.threads));
  init_weights(target.model, config.seed, trainer.records(), static_cast<int>(config.threads));

  nlohmann::json step_s = nlohmann::json::array(), loss = nlohmann::json::array(), norm = nlohmann::json::array(),
                 lanes = nlohmann::json::object();
  std::vector<double> seconds;
  StepReport last;
  int64_t allocations = 0, used = 0;
  const TrainConfig::Optim& o = config.optim;
  for (int64_t step = 1; step <= steps; ++step) {
    const Batch batch = random_batch(config, target.model.vocab, step - 1);
    last = trainer.step(
        batch,
        {.adamw =
             {.lr = o.lr, .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .weight_decay = o.weight_decay, .t = step},
         .clip = o.clip});
    log_info(metrics_line({.step = step, .steps = steps, .lr = o.lr, .report = last}));
    step_s.push_back(last.seconds);
    loss.push_back(last.loss);
    norm.push_back(last.grad_norm);
    if (step > 1 || steps == 1) seconds.push_back(last.seconds);  // the first step also warms up
    used = std::max(used, machine.device->memory_used());
    const int64_t now = machine.device->ledger().allocations() + machine.device->host_ledger().allocations();
    if (step == 1) allocations = now;
    if (step == steps) allocations = now - allocations;
  }
  trainer.drain();
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  for (int i = 0; i < kLanes; ++i) {
    const double busy = last.lanes.busy[static_cast<size_t>(i)];
    lanes[lane_name(static_cast<Lane>(i))] = {{"busy_s", busy}, {"busy_percent", 100 * busy / last.seconds}};
  }
  const double tokens = static_cast<double>(workload.tokens());
  const MemoryNeed need = memory_need(workload, plan);
  const nlohmann::json json = {
      {"params", workload.parameters},
      {"tokens_per_step", workload.tokens()},
      {"step_s", step_s},
      {"median_s", median},
      {"tokens_per_s", tokens / median},
      {"tflops_6n", 6 * static_cast<double>(workload.parameters) * tokens / median * 1e-12},
      {"bound_by", last.bound_by()},
      {"lanes", lanes},
      {"bytes", {{"h2d", last.h2d_bytes}, {"d2h", last.d2h_bytes}}},
      {"peaks",
       {{"hbm", used},
        {"hbm_planned", need.hbm_bytes()},
        {"host", host_memory_peak()},
        {"host_planned", need.host_bytes()}}},
      {"steady_allocations", allocations},
      {"loss", loss},
      {"grad_norm", norm},
      {"state_hash",
       arguments.flag("--no-hash") ? nlohmann::json() : nlohmann::json(hash_state(trainer.records(), steps).state)},
      {"machine",
       {{"device", machine.device->name()}, {"cpus", usable_cpus().size()}, {"host_bytes", host_memory_available()}}}};
  if (arguments.flag("--json")) {
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print(
        "{:.0f} tokens/s, {:.4g} s a step (median of {}), {:.0f} TFLOP/s, bound by {}, device peak {} (planned {}), "
        "host peak {}\n",
        tokens / median, median, seconds.size(), json["tflops_6n"].get<double>(), last.bound_by(), format_bytes(used),
        format_bytes(need.hbm_bytes()), format_bytes(host_memory_peak()));
  }
  return 0;
}

}  // namespace

int verb_bench(const Words& words) {
  if (words.empty() || words[0] != "step")
    fail_config(
        "'megatrain bench' takes 'step' and a preset, such as 'megatrain bench step qwen2.5-7b'; see 'megatrain bench "
        "--help'");
  return bench_step(Words(words.begin() + 1, words.end()));
}

}  // namespace megatrain
