#include "megatrain/cli/print_what_fits.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include <unistd.h>

#include <fmt/format.h>

#include "megatrain/advice/plan_answer.h"
#include "megatrain/advice/what_fits.h"
#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/base/work_progress.h"
#include "megatrain/cli/machine_choice.h"
#include "megatrain/host/thread_team.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/machine/machines.h"
#include "megatrain/model/presets.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/outlook.h"
#include "megatrain/train/planned_machine.h"

namespace megatrain {

namespace {

constexpr const char* kModesText =
    "fp32, bf16, int8: full fine-tuning by state.moments; +stochastic: state.master too; upper half: fp32, the "
    "embedding\n"
    "and the lower half frozen; LoRA: adapters of rank 16 on all linear modules over a frozen base; longest context:\n"
    "the longest sequence in the first of these that fits, its tokens/s and the state format\n";

// A GPU that many have, for what a machine without one would gain.
constexpr const char* kUsualGpu = "4090";

nlohmann::json rows_json(const std::vector<FitRow>& rows, const MachineProfile& machine) {
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
  return list;
}

// For a machine whose device is the CPU: what a GPU beside its memory would change.
std::string without_gpu_text(const TrainConfig& config, const PlannedMachine& planned) {
  MachineProfile with_gpu = named_machine(kUsualGpu);
  const int64_t half = planned.budgets.host_bytes;
  with_gpu.host_bytes = planned.limits.host_bytes;
  PlannedMachine gpu = machine_from_profile(with_gpu);
  gpu.budgets.host_bytes = 2 * half;  // the CPU device has the other half
  std::string text = fmt::format("with a {} ({}) and this machine's memory:\n", kUsualGpu, "from data sheets");
  for (const GpuGain& gain : gpu_gains(config, planned, gpu)) {
    text +=
        fmt::format("  {} in {}: {} tokens/s instead of {:.3g}, {} times; a GPU of {} or more is enough\n",
                    gain.here.model, gain.here.mode, thousands(gain.with_gpu.tokens_per_s), gain.here.tokens_per_s,
                    thousands(gain.with_gpu.tokens_per_s / gain.here.tokens_per_s), format_bytes(gain.least_gpu_bytes));
  }
  return text + fmt::format("--machine {} plans for it\n", kUsualGpu);
}

// The presets that the plain arguments name; all if there are none.
std::vector<std::string> chosen_presets(const Arguments& arguments) {
  if (arguments.plain().empty()) return preset_names();
  std::vector<std::string> chosen;
  for (const std::string& name : arguments.plain()) {
    const std::string preset = preset_of(name), near = nearest_preset(name);
    if (preset.empty())
      fail_config(fmt::format("--what-fits: '{}' is no preset{}; 'megatrain plan --help' lists them", name,
                              near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)));
    if (std::ranges::find(chosen, preset) == chosen.end()) chosen.push_back(preset);
  }
  return chosen;
}

}  // namespace

int print_what_fits(const Arguments& arguments) {
  for (const char* option : {"--random", "--layers", "--price", "--bytes"}) {
    if (arguments.option(option) || arguments.flag(option))
      fail_config(fmt::format("--what-fits cannot be combined with {}", option));
  }
  for (const char* key : {"state.moments", "state.master", "freeze", "train_only", "micro_batch"}) {
    if (arguments.overrides(key)) fail_config(fmt::format("--what-fits tries {} itself; leave --{} out", key, key));
  }
  const TrainConfig config =
      parse_config("", "plan --what-fits", arguments.overrides(), {.model = false, .data = false, .steps = false});
  if (config.adapter != TrainConfig().adapter)
    fail_config("--what-fits tries adapters of rank 16 itself; leave the keys of adapter out");
  const MachineToPlan made = machine_to_plan(machine_choice(arguments), config);
  const PlannedMachine& planned = made.planned;
  const Budgets budgets = make_budgets(config, planned);
  const std::vector<std::string> presets = chosen_presets(arguments);
  std::optional<WorkProgress> progress;
  // rows that come one by one show the progress
  if (arguments.json() || isatty(STDOUT_FILENO) == 0) progress.emplace("planning presets", std::ssize(presets));
  const FitTable table(presets);
  if (!arguments.json()) {
    fmt::print(
        "tokens/s on {} within {} of {} and {} of RAM; sequence length {}; batch large enough to hide optimizer time\n",
        planned.gpu ? planned.profile.title()
                    : fmt::format("this machine's {} (there is no GPU; {})",
                                  counted(planned.profile.shared_cores, "CPU core"), planned.profile.title()),
        format_bytes(budgets.gpu_bytes), planned.gpu ? "GPU memory" : "RAM to compute in",
        format_bytes(budgets.host_bytes), config.seq_len);
    fmt::print("{}", table.header());
    std::fflush(stdout);
  }
  const std::vector<FitRow> rows =
      what_fits(presets, config, arguments.overrides("batch"), planned, [&](const std::vector<FitRow>& of_model) {
        if (progress) progress->add(1);
        if (arguments.json()) return;
        fmt::print("{}", table.line(of_model));
        std::fflush(stdout);
      });
  if (arguments.json()) {
    fmt::print("{}\n", json_text(rows_json(rows, planned.profile), 1));
    return 0;
  }
  fmt::print("{}", kModesText);
  if (!planned.gpu && !arguments.option("--machine")) fmt::print("{}", without_gpu_text(config, planned));
  return 0;
}

}  // namespace megatrain
