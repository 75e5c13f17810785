#include <algorithm>

#include <fmt/format.h>

#include "megatrain/advice/longest_context.h"
#include "megatrain/advice/machine_to_plan.h"
#include "megatrain/advice/plan_answer.h"
#include "megatrain/advice/what_fits.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/presets.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/describe.h"

namespace megatrain {

namespace {

constexpr const char* kModesText =
    "fp32, bf16, int8: full fine-tuning by state.moments; +stochastic: state.master too; upper half: fp32, the "
    "embedding\n"
    "and the lower half frozen; LoRA: adapters of rank 16 on all linear modules over a frozen base; longest context:\n"
    "the longest sequence in the first of these that fits, its tokens/s and the state format\n";

MachineChoice machine_choice(const Arguments& arguments) {
  return {.name = arguments.option("--machine"), .ram = arguments.option("--ram"), .disk = arguments.option("--disk")};
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
  const MachineToPlan planned = machine_to_plan(machine_choice(arguments), config);
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

// The options for the longest sequences that fit. `tokens` is the result of longest_context().
std::string longest_text(int64_t tokens) {
  if (tokens == 0) return fmt::format("longest context: less than {} tokens", kContextGrain);
  return fmt::format("longest context: {} tokens{} (--seq_len={} --micro_batch=1)", tokens,
                     tokens == kMostContext ? " or more" : "", tokens);
}

void print_plan(const PlanAnswer& answer) {
  const PlanAnswer::Made& made = *answer.made;
  const PlanInputs& p = made.inputs;
  const Outlook& o = made.outlook;
  fmt::print("{}{}", explain(p.workload, made.plan, o.estimate), outlook_text(p.workload, o, p.profile, answer.price));
  if (const auto& small = made.smallest)
    fmt::print("the smallest step, one micro-batch of {} tokens, takes {}, bound by {}: {:.0f} tokens/s\n",
               p.workload.micro_tokens, format_seconds(small->estimate.step_s), small->estimate.bound_by,
               small->tokens_per_s);
  fmt::print("{}\n", longest_text(answer.longest));
  fmt::print("{}", describe(answer.files, answer.free_of));
  for (const std::string& change : made.changes) fmt::print("to fit: {}\n", change);
  if (!answer.problem.empty()) say_error(answer.problem);
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

void print_misfit(const PlanAnswer& answer) {
  say_error(fmt::format("{} (planned for {})", answer.problem, answer.machine.title()));
  for (const Suggestion& s : answer.suggestions)
    log_info(fmt::format("would fit, at {:.0f} tokens/s: {}{}", s.tokens_per_s, quoted(s.change),
                         s.note.empty() ? "" : fmt::format(" ({})", s.note)));
  if (answer.longest > 0) log_info(longest_text(answer.longest));
}

}  // namespace

int verb_plan(const Arguments& arguments) {
  if (arguments.flag("--what-fits")) return print_what_fits(arguments);
  const std::string& name = arguments.one("CONFIG, DIR, PRESET or Org/Name");
  const PlanAnswer answer =
      answer_plan({.target = read_target(name, arguments.overrides(), arguments.integer("--layers")),
                   .machine = machine_choice(arguments),
                   .seed = arguments.integer("--random"),
                   .price = arguments.number("--price"),
                   .run_dir_is_known = names_configuration(name)});
  if (arguments.json()) {
    fmt::print("{}\n", json_text(to_json(answer), 1));
  } else if (answer.made) {
    print_plan(answer);
  } else {
    print_misfit(answer);
  }
  return static_cast<int>(answer.problem.empty() ? ExitCode::ok : ExitCode::cannot_fit);
}

}  // namespace megatrain
