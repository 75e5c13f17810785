#include "megatrain/advice/plan_answer.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/advice/longest_context.h"
#include "megatrain/advice/plan_inputs.h"
#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/describe.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/train/expert_groups.h"

namespace megatrain {

namespace {

nlohmann::json placement(const Workload& w, const Plan& plan) {
  nlohmann::json list = nlohmann::json::array();
  for (int64_t record = 0; record < w.record_count(); ++record) {
    const bool block = w.is_layer_record(record);
    const bool here = plan.state_on_device(record) || (block && plan.copied(record));
    list.push_back({{"record", record},
                    {"layer", w.phase_of(record)},
                    {"kind", block                    ? "block"
                             : w.is_looked_up(record) ? "embedding"
                                                      : "head"},
                    {"weights", here                            ? "hbm"
                                : plan.weights_on_disk(record)  ? "disk"
                                : plan.weights_in_files(record) ? "files"
                                                                : "host"},
                    {"state", plan.visiting(record)          ? "host, visiting"
                              : plan.state_on_device(record) ? "hbm"
                                                             : "host"},
                    {"moments", tier_name(plan.record(record).moments)},
                    {"boundary", nullptr},
                    {"outputs", nullptr}});
    if (const std::string experts = experts_of(w, record); !experts.empty()) list.back()["experts"] = experts;
  }
  for (int64_t phase = 1; phase < w.head_phase(); ++phase) {
    nlohmann::json& at = list[static_cast<size_t>(w.phase(phase).records.front())];
    at["boundary"] = tier_name(plan.phase(phase).input);
    if (plan.phase(phase).keep > Keep::nothing) at["outputs"] = tier_name(plan.phase(phase).outputs);
  }
  return list;
}

nlohmann::json describe(const PlanInputs& p, const Plan& plan, const Outlook& o) {
  nlohmann::json recompute = nlohmann::json::array();
  for (int64_t phase = 1; phase < p.workload.head_phase(); ++phase)
    recompute.push_back(p.workload.phase(phase).level(plan.phase(phase).keep).recomputed);
  const MemoryNeed need = memory_need(p.workload, plan);
  const Estimate& e = o.estimate;
  nlohmann::json generation;
  if (p.workload.generation_bytes > 0)
    generation = {{"bytes", p.workload.generation_bytes}, {"set_aside", need.bytes_of(ResourceKind::generation)}};
  return {{"parameters", p.workload.parameters},
          {"active_parameters", p.workload.active_parameters},
          {"placement", placement(p.workload, plan)},
          {"slots", plan.rings.weight_slots},
          {"small_slots", plan.rings.small_slots},
          {"packed_slots", plan.rings.packed_slots},
          {"sweeps", plan.sweeps},
          {"recompute", recompute},
          {"peaks",
           {{"hbm", need.hbm_bytes()},
            {"host", need.host_bytes()},
            {"disk", need.disk_bytes()},
            {"files", need.file_bytes()}}},
          {"step_s", e.step_s},
          {"compute_s", {{"attention", o.attention_s}, {"rest", e.compute_s - o.attention_s}}},
          {"tokens_per_s", o.tokens_per_s},
          {"tokens_to_hide",
           {{"link", o.link_tokens()},
            {"weights", o.weights_tokens},
            {"gradients", o.gradients_tokens},
            {"optimizer", o.optimizer_tokens}}},
          {"checkpoint", {{"bytes", o.checkpoint_bytes}, {"seconds", o.checkpoint_s}}},
          {"lanes_s",
           {{"compute", e.compute_s},
            {"h2d", e.h2d_s},
            {"d2h", e.d2h_s},
            {"update", e.update_s},
            {"disk_read", e.disk_read_s},
            {"disk_write", e.disk_write_s}}},
          {"bound_by", e.bound_by},
          {"generation", generation},
          {"plan_hash", plan_hash(p.workload, plan)},
          {"plan", plan_to_json(p.workload, plan)},
          {"memory", memory_to_json(need)}};
}

void check_price(std::optional<double> price) {
  constexpr double kMost = 1e6;
  if (price && !(*price >= 0 && *price <= kMost))
    fail_config(fmt::format("--price is {}; expected what an hour costs, a number from 0 to {:.0f}", *price, kMost));
}

// A random plan that fits: the seed's own, or the first that fits of a series starting there. Every 100 tries the
// grouping of experts into records is drawn again.
PlanAnswer::Made random_plan_within(const Target& target, const PlannedMachine& planned, uint64_t seed) {
  constexpr uint64_t kGroups = 10, kTries = 100, kStride = uint64_t{1} << 32;
  for (uint64_t i = 0; i < kGroups * kTries; i += kTries) {
    const int64_t group = random_group(target.model, seed + i * kStride);
    const PlanInputs p = plan_inputs_of_group(target.config, target.model, planned, target.stored, group);
    for (uint64_t k = 0; k < kTries; ++k) {
      const Plan plan = random_plan(p.workload, seed + (i + k) * kStride);
      const MemoryNeed need = memory_need(p.workload, plan);
      if (need.hbm_bytes() <= p.budgets.gpu_bytes && need.host_bytes() <= p.budgets.host_bytes &&
          need.disk_bytes() <= p.budgets.disk_bytes)
        return {.inputs = p, .plan = plan, .changes = {}};
    }
  }
  fail(ExitCode::cannot_fit,
       fmt::format("none of {} random plans fits the budgets; leave --random out, or raise memory.gpu and memory.host",
                   kGroups * kTries));
}

// Throws Error(cannot_fit).
PlanAnswer::Made make_plan(const PlanQuestion& question, const Target& target, const PlannedMachine& planned) {
  warn_of_long_sequences(target.config, target.model);
  PlanAnswer::Made made;
  if (question.seed) {
    if (*question.seed < 0) fail_config(fmt::format("--random is {}; expected a seed of at least 0", *question.seed));
    made = random_plan_within(target, planned, static_cast<uint64_t>(*question.seed));
  } else {
    made.inputs = plan_inputs(target.config, target.model, planned, target.stored);
    made.plan =
        choose_plan(target.config, made.inputs.workload, made.inputs.budgets, made.inputs.profile, &made.changes);
  }
  const PlanInputs& p = made.inputs;
  made.outlook = outlook(p.workload, made.plan, p.profile);
  if (p.workload.micro_batches > 1 && size_matters(p.workload, made.outlook)) {
    if (const auto small = fit_smallest_step(target.config, target.model, planned, target.stored))
      made.smallest = small->outlook;
  }
  return made;
}

// What a run of the target writes to disk. If the data decides the number of steps, assumes as many checkpoints as the
// run may keep, or one if it keeps all: `train` knows their number and refuses what the disk cannot hold.
DiskNeed disk_of(const Target& target, int64_t scratch_bytes) {
  constexpr int64_t kMany = 1'000'000'000;
  TrainConfig config = target.config;
  int64_t steps = config.tokens > 0 ? ceil_div(config.tokens, config.batch * config.seq_len) : config.steps;
  if (steps == 0) {
    steps = config.checkpoint.keep < kMany ? kMany : std::max<int64_t>(config.checkpoint.every, 1);
    config.dump = {};
  }
  return disk_need(config, target.model, target.stored, steps, scratch_bytes);
}

nlohmann::json disk_json(const DiskNeed& need, const std::string& problem) {
  nlohmann::json parts = nlohmann::json::array();
  for (const DiskPart& part : need.parts)
    parts.push_back({{"what", part.what}, {"directory", part.directory}, {"bytes", part.bytes}});
  return {{"bytes", need.bytes()},
          {"parts", parts},
          {"problem", problem.empty() ? nlohmann::json() : nlohmann::json(problem)}};
}

nlohmann::json plan_of(const PlanAnswer& answer) {
  const PlanAnswer::Made& made = *answer.made;
  nlohmann::json json = describe(made.inputs, made.plan, made.outlook);
  const TrainConfig& config = answer.config;
  json["fits"] = answer.problem.empty();
  json["verdict"] = verdict_json(answer.verdict);
  json["step"] = {{"batch", config.batch}, {"micro_batch", config.micro_batch}, {"seq_len", config.seq_len}};
  json["files"] = disk_json(answer.files, answer.problem);
  json["changes"] = made.changes;
  json["suggestions"] = nlohmann::json::array();
  json["machine"] = machine_json(answer.machine);
  json["longest_seq_len"] = answer.longest;
  json["smallest_step"] = nullptr;
  if (const auto& small = made.smallest)
    json["smallest_step"] = {{"tokens", made.inputs.workload.micro_tokens},
                             {"step_s", small->estimate.step_s},
                             {"tokens_per_s", small->tokens_per_s},
                             {"bound_by", small->estimate.bound_by}};
  if (answer.price) json["cost_per_billion_tokens"] = cost_per_billion_tokens(made.outlook, *answer.price);
  return json;
}

nlohmann::json misfit_of(const PlanAnswer& answer) {
  nlohmann::json list = nlohmann::json::array();
  for (const Suggestion& s : answer.suggestions)
    list.push_back({{"change", s.change}, {"note", s.note}, {"tokens_per_s", s.tokens_per_s}});
  return {{"fits", false},
          {"verdict", verdict_json(answer.verdict)},
          {"changes", nlohmann::json::array({answer.problem})},
          {"suggestions", list},
          {"longest_seq_len", answer.longest},
          {"machine", machine_json(answer.machine)}};
}

}  // namespace

PlanAnswer answer_plan(const PlanQuestion& question) {
  check_price(question.price);
  Target target = question.target;
  MachineToPlan site = machine_to_plan(question.machine, target.config);
  PlannedMachine& planned = site.planned;
  if (!target.directory.empty()) planned.base_files = base_may_stay(target.config, target.directory);
  PlanAnswer answer{.machine = planned.profile, .price = question.price};
  FreeStep free = question.free;
  if (!target.config.plan.empty() || question.seed) free = {};  // the plan is for the step as given
  answer.config = target.config;
  answer.step_chosen = free.any();
  try {
    target.config = with_realistic_step(target.config, target.model, planned, target.stored, free);
    answer.config = target.config;
    answer.made = make_plan(question, target, planned);
    const PlanInputs& p = answer.made->inputs;
    const MemoryNeed need = memory_need(p.workload, answer.made->plan);
    answer.machine = p.profile;
    answer.verdict = verdict_of(target.config, p, need, answer.made->outlook, question.price);
    answer.files = disk_of(target, need.disk_bytes());
    if (!question.machine.name) answer.free_of = free_space;
    // a model alone does not say where a run would write
    if (answer.free_of && question.run_dir_is_known) answer.problem = disk_problem(answer.files);
    answer.verdict.fits = answer.problem.empty();
    if (question.looks_for_faster)
      answer.suggestions =
          what_is_faster(target.config, target.model, planned, target.stored, free, answer.made->outlook.tokens_per_s);
  } catch (const Error& error) {
    if (error.code() != ExitCode::cannot_fit) throw;
    answer.made.reset();
    answer.problem = error.what();
    answer.suggestions = what_would_fit(target.config, target.model, planned, target.stored, free);
    answer.verdict = verdict_of_misfit(target.config, target.model, planned, target.stored);
  }
  if (free.batch) target.config.batch = 1;
  answer.longest = longest_context(target.config, target.model, planned, target.stored);
  return answer;
}

nlohmann::json machine_json(const MachineProfile& machine) {
  return {{"name", machine.name}, {"measured", machine.measured()}};
}

nlohmann::json to_json(const PlanAnswer& answer) { return answer.made ? plan_of(answer) : misfit_of(answer); }

}  // namespace megatrain
