// `bench step`: the trainer's own loop on random weights and tokens.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

#include "megatrain/base/build_commit.h"
#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"
#include "megatrain/bench/bench.h"
#include "megatrain/config/arguments.h"
#include "megatrain/host/memory.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/run/metrics.h"
#include "megatrain/train/algorithms.h"
#include "megatrain/train/setup.h"
#include "megatrain/train/state_files.h"
#include "megatrain/train/target.h"
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

// When the kernel made this process, on the clock of now_s().
double process_start_s() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return now_s();
  std::istringstream fields(text.substr(end_of_name + 1));
  constexpr int kStartTime = 22, kFirstField = 3;
  std::string field;
  for (int i = kFirstField; i <= kStartTime; ++i) fields >> field;
  timespec since_boot{};
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  const double age = static_cast<double>(since_boot.tv_sec) + static_cast<double>(since_boot.tv_nsec) * 1e-9 -
                     std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return now_s() - age;
}

nlohmann::json floor_json(const Floor* floor) {
  if (!floor) return {};
  return {{"tokens_per_s", floor->keep_tokens_per_s()},
          {"mode", "keep"},
          {"recompute", floor->recompute_tokens_per_s()},
          {"keep", floor->keep_tokens_per_s()}};
}

}  // namespace

BenchResult bench_step(const Words& words) {
  BenchSession session{.start_s = process_start_s(), .floors = {}};
  return bench_step(words, session);
}

BenchResult bench_step(const Words& words, BenchSession& session) {
  const Arguments arguments(with_key_spelling(words), {"--layers", "-r", "--slots"},
                            {"--serial", "--no-hash", "--floor", "--no-floor"}, "bench step");
  Target target =
      read_target(arguments.one("PRESET or config.json"), arguments.overrides(), arguments.integer("--layers"));
  const TrainConfig& config = target.config;
  const int64_t steps = arguments.integer("-r").value_or(5);
  if (steps < 1) fail_config(fmt::format("-r is {}; expected at least one step", steps));

  Machine machine = open_machine(config.device, config.threads);
  RunIdentity identity = make_identity(config, target.model);
  choose_algorithms(config, target.model, machine, nullptr, identity);
  const bool cuda = machine.device->kind() == DeviceKind::cuda;
  const bool wants_floor = arguments.flag("--floor") || (cuda && !arguments.flag("--no-floor"));
  const double before_floor = now_s();
  const Floor* floor =
      wants_floor ? &measure_floor(config, target.model, identity, *machine.device, session.floors) : nullptr;
  const double floor_s = now_s() - before_floor;  // no part of what a run needs to start
  const Workload workload = make_workload(config, target.model, identity, machine);
  const MachineProfile profile = machine_profile(*machine.device);
  Budgets budgets = make_budgets(config, *machine.device);
  const auto slots = arguments.integer("--slots");
  if (slots) budgets.state_on_host = true;  // every block streams
  Plan plan = choose_plan(config, workload, budgets, profile, nullptr);
  if (slots) {
    plan.slots = *slots;
    std::fill(plan.weights.begin(), plan.weights.end(), Tier::host);
  }
  plan.serial = plan.serial || arguments.flag("--serial");
  check_plan(workload, plan);
  std::istringstream lines(explain(workload, plan, estimate(workload, plan, profile)));
  for (std::string line; std::getline(lines, line);) log_info(line);
  Trainer trainer(machine, target.model, identity, ops_shape(config, target.model, identity), workload, plan,
                  static_cast<int>(config.threads));
  init_weights(target.model, config.seed, trainer.records(), static_cast<int>(config.threads));

  nlohmann::json step_s = nlohmann::json::array(), loss = nlohmann::json::array(), norm = nlohmann::json::array(),
                 lanes = nlohmann::json::object();
  std::vector<double> seconds;
  StepReport last;
  Trace trace;
  int64_t allocations = 0, used = 0;
  const double start_s = now_s() - session.start_s - floor_s;
  const TrainConfig::Optim& o = config.optim;
  for (int64_t step = 1; step <= steps; ++step) {
    const Batch batch = random_batch(config, target.model.vocab, step - 1);
    trainer.trace_into(config.trace.contains(step) ? &trace : nullptr);
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
  if (!trace.empty()) {
    write_text_file("trace.json", trace.json());
    log_info("the traced steps are in trace.json");
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  for (int i = 0; i < kLanes; ++i) {
    const double busy = last.lanes.busy[static_cast<size_t>(i)];
    lanes[lane_name(static_cast<Lane>(i))] = {{"busy_s", busy}, {"busy_percent", 100 * busy / last.seconds}};
  }
  nlohmann::json actions = nlohmann::json::object();
  for (const auto& [name, busy] : trainer.pipeline().action_seconds()) actions[name] = busy;
  const double tokens = static_cast<double>(workload.tokens());
  const MemoryNeed need = memory_need(workload, plan);
  const double percent_of_floor = floor ? 100 * tokens / median / floor->keep_tokens_per_s() : 0;
  BenchResult result;
  result.json = {
      {"params", workload.parameters},
      {"tokens_per_step", workload.tokens()},
      {"step_s", step_s},
      {"median_s", median},
      {"tokens_per_s", tokens / median},
      {"tflops_6n", 6 * static_cast<double>(workload.parameters) * tokens / median * 1e-12},
      {"floor", floor_json(floor)},
      {"percent_of_floor", floor ? nlohmann::json(percent_of_floor) : nlohmann::json()},
      {"bound_by", last.bound_by()},
      {"stall", {{"seconds", last.stall.seconds}, {"for", last.stall.cause}}},
      {"lanes", lanes},
      {"actions", actions},
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
      {"start_s", start_s},
      {"aliased", machine.device->kind() == DeviceKind::cpu},
      {"commit", kBuildCommit},
      {"machine",
       {{"device", machine.device->name()},
        {"library", identity.library},
        {"cpus", usable_cpus().size()},
        {"host_bytes", host_memory_available()}}}};
  result.text = fmt::format(
      "{:.0f} tokens/s{}, {:.4g} s a step (median of {}), {:.0f} TFLOP/s, bound by {}, device peak {} (planned {}), "
      "host peak {}\n",
      tokens / median, floor ? fmt::format(" ({:.1f}% of the floor)", percent_of_floor) : "", median, seconds.size(),
      result.json["tflops_6n"].get<double>(), last.bound_by(), format_bytes(used), format_bytes(need.hbm_bytes()),
      format_bytes(host_memory_peak()));
  return result;
}

}  // namespace megatrain
