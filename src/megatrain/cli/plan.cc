#include <algorithm>

#include <fmt/format.h>

#include "megatrain/advice/longest_context.h"
#include "megatrain/advice/plan_inputs.h"
#include "megatrain/advice/suggestions.h"
#include "megatrain/advice/what_fits.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/machine_to_plan.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/presets.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/describe.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/run/disk_need.h"
#include "megatrain/train/expert_groups.h"
#include "megatrain/train/target.h"

namespace megatrain {

namespace {

constexpr const char* kModesText =
    "fp32, bf16, int8: full fine-tuning by state.moments; +stochastic: state.master too; upper half: fp32, the "
    "embedding\n"
    "and the lower half frozen; LoRA: adapters of rank 16 on all linear modules over a frozen base; longest context:\n"
    "the longest sequence in the first of these that fits, its tokens/s and the state format\n";

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

nlohmann::json machine_json(const MachineProfile& machine) {
  return {{"name", machine.name}, {"measured", machine.measured()}};
}

int print_what_fits(const Arguments& arguments) {
  arguments.none();
  for (const char* option : {"--random", "--layers", "--price"}) {
    if (arguments.option(option)) fail_config(fmt::format("--what-fits cannot be combined with {}", option));
  }
  for (const char* key : {"state.moments", "state.master", "freeze", "train_only", "micro_batch"}) {
    if (arguments.overrides(key)) fail_config(fmt::format("--what-fits tries {} itself; leave --{} out", key, key));
  }
  const TrainConfig config =
      parse_config("", "plan --what-fits", arguments.overrides(), {.model = false, .data = false, .steps = false});
  if (config.adapter != TrainConfig().adapter)
    fail_config("--what-fits tries adapters of rank 16 itself; leave the keys of adapter out");
  const bool batch_given = arguments.overrides("batch");
  const MachineToPlan planned = machine_to_plan(arguments, config);
  const Budgets budgets = make_budgets(config, planned.planned);
  const std::vector<FitRow> rows = what_fits(preset_names(), config, batch_given, planned.planned);
  const MachineProfile& machine = planned.planned.profile;
  if (arguments.json()) {
    nlohmann::json list = nlohmann::json::array();
    for (const FitRow& row : rows)
      list.push_back(
          {{"model", row.model},
           {"mode", row.mode},
           {"fits", row.fits},
           {"ram", row.ram_bytes},
           {"hbm", row.hbm_bytes},
           {"disk", row.disk_bytes},
           {"tokens_per_s", row.tokens_per_s},
           {"batch", row.batch},
           {"seq_len", row.seq_len},
           {"state", {{"moments", moments_name(row.state.moments)}, {"master", master_name(row.state.master)}}},
           {"machine", machine_json(machine)}});
    fmt::print("{}\n", json_text(list, 1));
    return 0;
  }
  fmt::print(
      "tokens/s on {} within {} of GPU memory and {} of RAM; sequence length {}; batch large enough to hide optimizer "
      "time\n",
      machine.title(), format_bytes(budgets.gpu_bytes), format_bytes(budgets.host_bytes), config.seq_len);
  fmt::print("{}", what_fits_text(rows));
  fmt::print("{}", kModesText);
  return 0;
}

struct Planned {
  PlanInputs inputs;
  Plan plan;
  std::vector<std::string> changes;  // what was reduced to make it fit
  Outlook outlook = {};
  std::optional<Outlook> smallest = {};  // for a step of one micro-batch, if size_matters() and the step has more
};

// A random plan that fits: the seed's own, or the first that fits of a series starting there. Every 100 tries the
// grouping of experts into records is drawn again.
Planned random_plan_within(const Target& target, const PlannedMachine& planned, uint64_t seed) {
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
Planned plan_target(const Arguments& arguments, const Target& target, const PlannedMachine& planned) {
  warn_of_long_sequences(target.config, target.model);
  Planned made;
  if (const auto seed = arguments.integer("--random")) {
    if (*seed < 0) fail_config(fmt::format("--random is {}; expected a seed of at least 0", *seed));
    made = random_plan_within(target, planned, static_cast<uint64_t>(*seed));
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

struct PlannedFiles {
  DiskNeed need;
  FreeSpaceOf free_of;  // empty: planning for another machine
  std::string problem;  // set if they do not fit
};

nlohmann::json disk_json(const DiskNeed& need, const std::string& problem) {
  nlohmann::json parts = nlohmann::json::array();
  for (const DiskPart& part : need.parts)
    parts.push_back({{"what", part.what}, {"directory", part.directory}, {"bytes", part.bytes}});
  return {{"bytes", need.bytes()},
          {"parts", parts},
          {"problem", problem.empty() ? nlohmann::json() : nlohmann::json(problem)}};
}

// The options for the longest sequences that fit. `tokens` is the result of longest_context().
std::string longest_text(int64_t tokens) {
  if (tokens == 0) return fmt::format("longest context: less than {} tokens", kContextGrain);
  return fmt::format("longest context: {} tokens{} (--seq_len={} --micro_batch=1)", tokens,
                     tokens == kMostContext ? " or more" : "", tokens);
}

void print_plan(const Planned& made, int64_t longest, std::optional<double> price, const PlannedFiles& files,
                bool as_json) {
  const PlanInputs& p = made.inputs;
  const Outlook& o = made.outlook;
  const int64_t small_tokens = p.workload.micro_tokens;
  if (!as_json) {
    fmt::print("{}{}", explain(p.workload, made.plan, o.estimate), outlook_text(p.workload, o, p.profile, price));
    if (const auto& small = made.smallest)
      fmt::print("the smallest step, one micro-batch of {} tokens, takes {}, bound by {}: {:.0f} tokens/s\n",
                 small_tokens, format_seconds(small->estimate.step_s), small->estimate.bound_by, small->tokens_per_s);
    fmt::print("{}\n", longest_text(longest));
    fmt::print("{}", describe(files.need, files.free_of));
    for (const std::string& change : made.changes) fmt::print("to fit: {}\n", change);
    return;
  }
  nlohmann::json json = describe(p, made.plan, o);
  json["fits"] = files.problem.empty();
  json["files"] = disk_json(files.need, files.problem);
  json["changes"] = made.changes;
  json["suggestions"] = nlohmann::json::array();
  json["machine"] = machine_json(p.profile);
  json["longest_seq_len"] = longest;
  json["smallest_step"] = nullptr;
  if (const auto& small = made.smallest)
    json["smallest_step"] = {{"tokens", small_tokens},
                             {"step_s", small->estimate.step_s},
                             {"tokens_per_s", small->tokens_per_s},
                             {"bound_by", small->estimate.bound_by}};
  if (price) json["cost_per_billion_tokens"] = cost_per_billion_tokens(o, *price);
  fmt::print("{}\n", json_text(json, 1));
}

// The options as one types them: patterns are quoted so that the shell does not expand them.
std::string quoted(const std::string& options) {
  std::string text = options;
  const size_t begin = text.find("--freeze=");
  if (begin == std::string::npos) return text;
  const size_t value = begin + std::string("--freeze=").size();
  text.insert(std::min(text.find(' ', value), text.size()), "'");
  return text.insert(value, "'");
}

void print_misfit(const std::string& problem, const std::vector<Suggestion>& suggestions, int64_t longest,
                  const MachineProfile& machine, bool as_json) {
  if (!as_json) {
    say_error(fmt::format("{} (planned for {})", problem, machine.title()));
    for (const Suggestion& s : suggestions)
      log_info(fmt::format("would fit, at {:.0f} tokens/s: {}{}", s.tokens_per_s, quoted(s.change),
                           s.note.empty() ? "" : fmt::format(" ({})", s.note)));
    if (longest > 0) log_info(longest_text(longest));
    return;
  }
  nlohmann::json list = nlohmann::json::array();
  for (const Suggestion& s : suggestions)
    list.push_back({{"change", s.change}, {"note", s.note}, {"tokens_per_s", s.tokens_per_s}});
  fmt::print("{}\n", json_text(nlohmann::json{{"fits", false},
                                              {"changes", nlohmann::json::array({problem})},
                                              {"suggestions", list},
                                              {"longest_seq_len", longest},
                                              {"machine", machine_json(machine)}},
                               1));
}

}  // namespace

int verb_plan(const Arguments& arguments) {
  if (arguments.flag("--what-fits")) return print_what_fits(arguments);
  const Target target = read_target(arguments.one("CONFIG, DIR, PRESET or Org/Name"), arguments.overrides(),
                                    arguments.integer("--layers"));
  const std::optional<double> price = arguments.number("--price");
  check_price(price);
  MachineToPlan planned = machine_to_plan(arguments, target.config);
  if (!target.directory.empty()) planned.planned.base_files = base_may_stay(target.config, target.directory);
  const auto longest = [&] { return longest_context(target.config, target.model, planned.planned, target.stored); };
  try {
    const Planned made = plan_target(arguments, target, planned.planned);
    PlannedFiles files{.need = disk_of(target, memory_need(made.inputs.workload, made.plan).disk_bytes())};
    if (!arguments.option("--machine")) files.free_of = free_space;
    // a model alone does not say where a run would write
    if (files.free_of && names_configuration(arguments.plain()[0])) files.problem = disk_problem(files.need);
    print_plan(made, longest(), price, files, arguments.json());
    if (files.problem.empty()) return 0;
    if (!arguments.json()) say_error(files.problem);
    return static_cast<int>(ExitCode::cannot_fit);
  } catch (const Error& error) {
    if (error.code() != ExitCode::cannot_fit) throw;
    print_misfit(error.what(), what_would_fit(target.config, target.model, planned.planned, target.stored), longest(),
                 planned.planned.profile, arguments.json());
    return static_cast<int>(error.code());
  }
}

}  // namespace megatrain
